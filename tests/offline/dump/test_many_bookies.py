"""Many bookies in one dump: content, names, progress, and bookies that cannot be read."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, DirectoryInUse
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import DumpProgress, DumpSource, dump
from bkstore.offline.reading.manifest import read_manifest
from tests.worlds.dumps import CONTENT, contents, fill, idx, rows

pq = pytest.importorskip("pyarrow.parquet")

ROWS = sum(entries.size for entries in CONTENT.values())


def test_every_layout_gives_the_same(whole: Path) -> None:
    """Three layouts of one content give the same entries, ids above 2^63 among them."""
    expected = sorted(
        (*ledger.signed, entry, 7, entry * 100 + 1028)
        for ledger, entries in CONTENT.items()
        for entry in entries.tolist()
    )
    for name in ("idx", "rocks", "rocks3"):
        found = [row[2:7] for row in rows(whole, "entries") if row[0] == name]

        assert expected == sorted(found)


def test_files_follow_each_other(whole: Path) -> None:
    """Files of one index directory hold ranges of ledgers that ascend in unsigned order."""
    files = read_manifest(whole)["tables"]["entries"]["files"]
    for name in ("idx", "rocks"):
        ids = [
            LedgerId.from_signed(row["scope_id"], row["ledger_id"])
            for file in files
            if file["bookie"] == name
            for row in pq.read_table(whole / file["path"]).to_pylist()
        ]

        assert sorted(ids) == ids
        assert 3 <= len([file for file in files if file["bookie"] == name])


def test_processes_change_nothing(three: list[Path], whole: Path, tmp_path: Path) -> None:
    """Two processes beside each other write the same bytes as one."""
    dump(three, tmp_path / "out", piece_rows=2000, jobs=2)

    assert contents(whole) == contents(tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("jobs", [None, 2])
def test_progress(three: list[Path], tmp_path: Path, jobs: int | None) -> None:
    """Progress never goes back or beyond the whole, and ends with all rows."""
    seen: list[DumpProgress] = []
    dump(three, tmp_path / "out", seen.append, piece_rows=2000, jobs=jobs)
    done = [at.done for at in seen]

    assert sorted(done) == done
    assert done[-1] <= seen[-1].total
    assert 3 * ROWS == seen[-1].rows
    assert {"idx", "rocks", "rocks3"} == {at.bookie for at in seen}


# -- names


def test_names_by_argument(three: list[Path], tmp_path: Path) -> None:
    """NAME=DIR names a bookie; a directory whose own name has "=" in it is taken as it is."""
    odd = tmp_path / "x=y"
    fill(idx(odd))
    code = main(["dump", f"h:1={three[0]}", str(odd), str(tmp_path / "out"), "--jobs=1"])

    assert 0 == code
    assert {"h:1", "x=y"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}
    assert (tmp_path / "out" / "entries" / "h_1-00000.parquet").is_file()


def test_names_twice(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names by both ways at once are refused, and nothing is made."""
    code = main(["dump", f"a={three[0]}", str(tmp_path / "out"), "--bookie-id=b"])

    assert 2 == code
    assert "use one of them" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def test_hidden_names(three: list[Path], tmp_path: Path) -> None:
    """An id that begins with "_" or "." gives no file that Spark would pass over."""
    dump([DumpSource(three[0], "_b"), DumpSource(three[0], ".c")], tmp_path / "out")
    names = [path.name for path in (tmp_path / "out").rglob("*.parquet")]

    assert [] == [name for name in names if name[0] in "_."]
    assert {"_b", ".c"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}


# -- bookies that cannot be read


def _break(bookie: Path) -> None:
    (manifest,) = (bookie / "ledgers/current/locations").glob("MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    data[20] ^= 1  # in the first record
    manifest.write_bytes(data)


@pytest.fixture
def corrupt(three: list[Path], tmp_path: Path) -> Path:
    """Return a RocksDB bookie whose manifest is damaged."""
    shutil.copytree(three[1], tmp_path / "bad")
    _break(tmp_path / "bad")
    return tmp_path / "bad"


def test_block_that_is_damaged(tmp_path: Path) -> None:
    """A ledger whose rows a damaged block may have held is null, the others are whole."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        for ledger in range(400):
            index.put_many(ledger, np.arange(200), np.arange(200) * 977 + (ledger << 33) + 1028)
    (table,) = (tmp_path / "b/current/locations").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    result = dump([tmp_path / "b"], tmp_path / "out")
    here = Counter(row[3] for row in rows(tmp_path / "out", "entries"))
    told = {row[2]: row[4] for row in rows(tmp_path / "out", "ledgers")}

    assert "damage" in {found.severity for found in result.findings}
    assert set(range(400)) == set(told)
    assert {None, 200} == set(told.values())
    assert {ledger for ledger, count in told.items() if count is None} == {
        ledger for ledger in range(400) if here[ledger] != 200
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_corrupt_among_good(
    three: list[Path],
    corrupt: Path,
    tmp_path: Path,
    jobs: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bookie that cannot be opened is in manifest and findings; the rest is dumped; exit 1."""
    out = tmp_path / "out"
    words = [str(three[0]), str(corrupt), str(three[2]), str(out), f"--jobs={jobs}"]
    code = main(["dump", *words])
    manifest = read_manifest(out)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "damage" in line]

    assert 1 == code
    assert "bookie bad was not read" in line
    assert str(corrupt) in line
    assert not manifest["complete"]
    assert {"idx": True, "bad": False, "rocks3": True} == {
        bookie["id"]: bookie["read"] for bookie in manifest["bookies"]
    }
    assert "bookie bad was not read" in manifest["bookies"][1]["reason"]
    assert 2 * ROWS == len(rows(out, "entries"))
    assert [("bad", "damage")] == [row[:2] for row in rows(out, "findings")]


def test_nothing_can_be_read(
    corrupt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no bookie can be read there is no dump, one line, and exit code 2."""
    code = main(["dump", str(corrupt), str(tmp_path / "no"), str(tmp_path / "out")])

    assert 2 == code
    assert 1 == capsys.readouterr().err.count("\n")
    assert ["bad"] == [path.name for path in tmp_path.iterdir()]


def test_source_that_changes(three: list[Path], tmp_path: Path) -> None:
    """A bookie whose files change while they are read is not in the dump; alone, it is an error."""
    shutil.copytree(three[0], tmp_path / "moving")
    path = next((tmp_path / "moving").rglob("1.idx"))

    def touch(at: DumpProgress) -> None:
        os.utime(path, ns=(1, at.rows))

    result = dump([three[1], tmp_path / "moving"], tmp_path / "out", touch)
    with pytest.raises(BkstoreError, match="changed while"):
        dump([tmp_path / "moving"], tmp_path / "out2", touch)

    assert [None, "moving"] == [b.failure and b.bookie_id for b in result.bookies]
    assert {"rocks"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}
    assert not (tmp_path / "out2").exists()


def test_directory_that_grows(three: list[Path], tmp_path: Path) -> None:
    """A log that appears in a bookie's directory meanwhile makes it one in use."""
    shutil.copytree(three[0], tmp_path / "growing")

    def grow(at: DumpProgress) -> None:
        (tmp_path / "growing/ledgers/current/8.log").touch()

    with pytest.raises(DirectoryInUse, match="changed while the directory was read"):
        dump([tmp_path / "growing"], tmp_path / "out", grow)


def test_bad_arguments(three: list[Path], tmp_path: Path) -> None:
    """No bookie, no job, or a link in OUT's place is an `InvalidArgument`."""
    (tmp_path / "link").symlink_to(tmp_path)
    bad: list[tuple[list[Any], str, int]] = [([], "out", 1), (three, "out", 0), (three, "link", 1)]
    for bookies, name, jobs in bad:
        with pytest.raises(InvalidArgument):
            dump(bookies, tmp_path / name, jobs=jobs)
    with BookieDir(three[0]) as bookie, pytest.raises(InvalidArgument, match="not distinct"):
        dump([bookie, three[0]], tmp_path / "out")
