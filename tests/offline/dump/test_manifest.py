"""The manifest of a dump says what is there, and a manifest that says other things is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.offline.dump import TABLES, DumpSource, dump
from bkstore.offline.load.dump_rows import open_load_source as loaded_dump
from bkstore.offline.reading.manifest import read_manifest
from bkstore.offline.reading.open_dump import open_dump as analysed_dump
from bkstore.tables import Schema
from tests.docs.format_pages import FORMATS
from tests.worlds.dumps import CONTENT, NAMES, contents

pq = pytest.importorskip("pyarrow.parquet")

ROWS = sum(entries.size for entries in CONTENT.values())


def test_manifest_says_what_is_there(three: list[Path], whole: Path) -> None:
    """The manifest's files, rows and bytes are those of the dump, and it names the bookies."""
    manifest = read_manifest(whole)
    listed = {f["path"]: f for table in manifest["tables"].values() for f in table["files"]}
    there = {str(p.relative_to(whole)) for p in whole.rglob("*.parquet")}

    assert list(NAMES) == list(manifest["tables"])
    assert there == set(listed)
    assert there | {"manifest.json", "sources.json"} == set(contents(whole))
    for path, file in listed.items():
        assert (whole / path).stat().st_size == file["bytes"]
        assert pq.read_metadata(whole / path).num_rows == file["rows"]
    assert manifest["complete"]
    assert 3 * ROWS == manifest["tables"]["entries"]["rows"]
    assert [str(path) for path in three] == [b["path"] for b in manifest["bookies"]]
    assert ["idx", "rocksdb", "rocksdb"] == [b["layout"] for b in manifest["bookies"]]
    assert [ROWS] * 3 == [b["rows"]["entries"] for b in manifest["bookies"]]
    assert [1, 1, 3] == [len(b["directories"]["index"]) for b in manifest["bookies"]]


def test_no_manifest(whole: Path, tmp_path: Path) -> None:
    """What is no dump, of a later format, or not JSON is refused by name."""
    path = tmp_path / "manifest.json"
    with pytest.raises(InvalidArgument, match=r"not a dump: it has no manifest.json"):
        read_manifest(tmp_path)
    path.write_text("{")
    with pytest.raises(CorruptionError, match="not JSON"):
        read_manifest(tmp_path)
    path.write_text('{"kind": "else"}')
    with pytest.raises(InvalidArgument, match="not the manifest of a dump"):
        read_manifest(tmp_path)
    path.write_text(json.dumps({**read_manifest(whole), "format": 99}))
    with pytest.raises(UnsupportedLayout, match="format 99, supported are 1 and 2"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("schema", TABLES, ids=lambda schema: schema.name)
def test_page_columns(schema: Schema, whole: Path) -> None:
    """The format page lists each table's columns with kind and nullability, as the files do."""
    text = (FORMATS / "dump.md").read_text(encoding="utf-8")
    section = text.partition(f"### `{schema.name}`\n")[2].partition("\n##")[0]
    shown = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \|", section, re.MULTILINE)
    (file, *_) = sorted((whole / schema.name).glob("*.parquet"))

    assert [tuple(column) for column in schema.columns] == [(n, k, y == "yes") for n, k, y in shown]
    assert [(n, y == "yes") for n, _, y in shown] == [
        (field.name, field.nullable) for field in pq.read_schema(file)
    ]


@pytest.mark.parametrize(
    "said",
    [
        "../elsewhere.parquet",
        "/etc/passwd",
        "entries/../../x",
        "link/x.parquet",
        "",
        ".",
        7,
        "a\0b",
    ],
    ids=repr,
)
def test_paths_that_leave_the_dump(whole: Path, tmp_path: Path, said: Any) -> None:
    """A file of the manifest that lies elsewhere is refused by name, wherever it is read."""
    made = shutil.copytree(whole, tmp_path / "made")
    (made / "link").symlink_to(tmp_path)
    shutil.copy(next((whole / "entries").iterdir()), tmp_path / "x.parquet")
    document = json.loads((made / "manifest.json").read_text())
    name = document["tables"]["entries"]["files"][0]["bookie"]
    document["tables"]["entries"]["files"][0]["path"] = said
    (made / "manifest.json").write_text(json.dumps(document))
    reason = r"manifest\.json: .* (is not a path in|leads outside) the dump"
    with pytest.raises(CorruptionError, match=reason):
        analysed_dump(made)
    with pytest.raises(CorruptionError, match=reason):
        loaded_dump(made, name)


def test_a_dump_below_a_link(whole: Path, tmp_path: Path) -> None:
    """The dump itself may be reached through a link."""
    (tmp_path / "link").symlink_to(whole)

    assert ("idx", "rocks", "rocks3") == analysed_dump(tmp_path / "link").bookies


def test_ids_of_any_length(three: list[Path], whole: Path, tmp_path: Path) -> None:
    """Bookie ids longer than a file name can be are dumped, also those that differ at their end
    only, and in any script; the tables have them whole."""
    ids = ["x" * 4000 + "1", "x" * 4000 + "2", "\u65e5" * 500]
    sources = [DumpSource(path, name) for path, name in zip(three, ids)]
    dump(sources, tmp_path / "out")
    paths = (tmp_path / "out").rglob("*.parquet")

    assert ids == [each["id"] for each in read_manifest(tmp_path / "out")["bookies"]]
    assert set(ids) == set(pq.read_table(tmp_path / "out" / "entries")["bookie"].to_pylist())
    assert 200 > max(len(os.fsencode(path.name)) for path in paths)
    assert ROWS == loaded_dump(tmp_path / "out", ids[1]).rows
