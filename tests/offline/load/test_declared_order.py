"""Loads make use of what a manifest says of order, and of nothing that it does not say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import open_index
from bkstore.errors import CorruptionError
from bkstore.offline.load import load
from bkstore.offline.load.dump_rows import open_load_source, read_entry_rows
from bkstore.offline.reading import row_stream
from tests.worlds.dumps import CONTENT
from tests.worlds.loads import edit_manifest, say_nothing, share_a_range

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("bookie", ["idx", "rocks3"])
def test_sorted_files_are_not_looked_at_first(
    three: Path, tmp_path: Path, bookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are declared sorted are read once for the index and once to compare."""
    seen: list[str] = []
    real = row_stream.opened_parquet

    def opened(place: str) -> Any:
        seen.append(place)
        return real(place)

    monkeypatch.setattr(row_stream, "opened_parquet", opened)
    load(three, tmp_path / "out", "rocksdb", bookie=bookie)

    files = [str(path) for path in (three / "entries").glob(f"{bookie}-*")]

    assert sorted(2 * files) == sorted(seen)


@pytest.mark.parametrize("bookie", ["idx", "rocks3"])
@pytest.mark.parametrize("said", [share_a_range, say_nothing])
def test_files_that_are_not_declared_apart(
    three: Path, tmp_path: Path, bookie: str, said: Any
) -> None:
    """Files that may share a ledger, or say nothing of their order, give the same index."""
    shutil.copytree(three, tmp_path / "dump")
    edit_manifest(tmp_path / "dump", said)
    result = load(tmp_path / "dump", tmp_path / "out", "rocksdb", bookie=bookie)

    assert result.compared
    with open_index(tmp_path / "out") as index:
        held = {name: index.entries(name).tolist() for name in index.ledgers()}

    assert {name: ids.tolist() for name, ids in CONTENT.items()} == held


def test_ledgers_of_another_directory(three: Path, tmp_path: Path) -> None:
    """A file with rows of several directories, where the manifest says that it is sorted, is
    damage: none is skipped.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.copytree(three, tmp_path / "dump")
    paths = sorted((tmp_path / "dump/entries").glob("rocks3-*"))
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    narrow = table.filter(pa.compute.equal(table["scope_id"], 0)).sort_by(
        [("ledger_id", "ascending"), ("entry_id", "ascending")]
    )
    pq.write_table(narrow, paths[0])

    def said(manifest: Any) -> None:
        listed = manifest["tables"]["entries"]["files"]
        (first, *_) = [file for file in listed if file["bookie"] == "rocks3"]
        ids = narrow["ledger_id"].to_pylist()
        first.update(rows=len(ids), first_ledger=f"{ids[0]:032x}", last_ledger=f"{ids[-1]:032x}")
        manifest["tables"]["entries"]["files"] = [first]

    edit_manifest(tmp_path / "dump", said)
    with pytest.raises(CorruptionError, match=r"of directory \d and others"):
        load(tmp_path / "dump", tmp_path / "out", "rocksdb", bookie="rocks3")
    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


def _narrowed(dump: Path) -> str:
    """Let the manifest say that a file of several ledgers has the first alone; return which."""
    named: list[str] = []

    def said(manifest: Any) -> None:
        listed = manifest["tables"]["entries"]["files"]
        wide = next(
            file
            for file in listed
            if file["bookie"] == "rocks3" and file["first_ledger"] != file["last_ledger"]
        )
        wide["last_ledger"] = wide["first_ledger"]
        named.append(Path(wide["path"]).name)

    edit_manifest(dump, said)
    return named[0]


def test_ledgers_outside_the_declared(three: Path, tmp_path: Path) -> None:
    """A file with ledgers above the last one that the manifest names is damage, in a load and
    where rows are read as the files have them."""
    shutil.copytree(three, tmp_path / "dump")
    name = _narrowed(tmp_path / "dump")
    with pytest.raises(CorruptionError, match=f"{name}.*has ledger .*, the manifest says"):
        load(tmp_path / "dump", tmp_path / "out", "rocksdb", bookie="rocks3")
    with pytest.raises(CorruptionError, match=f"{name}.*has ledger .*, the manifest says"):
        list(read_entry_rows(open_load_source(tmp_path / "dump", "rocks3")))
    assert ["dump"] == [path.name for path in tmp_path.iterdir()]
