"""Dumps of directories whose entry logs are gone, or lie elsewhere than they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import DumpSource, dump
from bkstore.offline.reading.open_dump import open_dump

pytest.importorskip("pyarrow")

LOG_HEADER = b"BKLO" + bytes(1020)
MISSING = "no such entry log, but the index has locations in it"


def _make_bookie(top: Path, index_class: Any, log_ids: tuple[int, ...] = (0, 1, 26)) -> Path:
    """Make a bookie with a ledger in each of the entry logs, whose files have headers only."""
    with index_class(top / "ledgers", writable=True) as index:
        for log_id in log_ids:
            index.put_many(log_id, range(40), range((log_id << 32) + 1028, (log_id << 32) + 1068))
    for log_id in log_ids:
        (top / "ledgers" / "current" / f"{log_id:x}.log").write_bytes(LOG_HEADER)
    return top


def _missing(top: Path, name: str, **options: Any) -> list[str]:
    """Return the files that a dump finds missing; its other findings fail the test."""
    findings = dump([top / "b"], top / name, piece_rows=50, **options).findings
    assert all((finding.severity, finding.detail) == ("damage", MISSING) for finding in findings)
    return sorted(str(finding.file) for finding in findings)


@pytest.mark.parametrize("index_class", [HierarchicalIndex, RocksIndex])
def test_each_is_a_finding(tmp_path: Path, index_class: Any) -> None:
    """A log that locations name and no directory has is damage, also of pieces taken from an
    earlier dump; the rows are there."""
    bookie = _make_bookie(tmp_path / "b", index_class)
    assert [] == _missing(tmp_path, "one")
    for log_id in ("1", "1a"):
        (bookie / "ledgers" / "current" / f"{log_id}.log").unlink()

    assert ["1.log", "1a.log"] == _missing(tmp_path, "two", since=tmp_path / "one")
    assert ["1.log", "1a.log"] == _missing(tmp_path, "three")
    assert 120 == open_dump(tmp_path / "two").read("entries").num_rows


def test_another_directorys_log(tmp_path: Path) -> None:
    """With RocksDB a location's log is in the directory of its database; another's is another."""
    for number in range(2):
        with RocksIndex(tmp_path / "b" / f"ledgers{number}", writable=True) as index:
            index.put_many(number, range(3), range(1028, 1031))
    current = tmp_path / "b" / "ledgers0" / "current"
    (current / "0.log").write_bytes(LOG_HEADER)
    (tmp_path / "b" / "ledgers1" / "current" / "9.log").write_bytes(LOG_HEADER)

    assert ["0.log"] == _missing(tmp_path, "one")


def test_not_judged(tmp_path: Path) -> None:
    """Nothing is said of a copy of the index alone, nor of a running bookie, which removes logs."""
    bookie = _make_bookie(tmp_path / "b", HierarchicalIndex)
    (bookie / "ledgers" / "current" / "1.log").unlink()
    live = dump([DumpSource(bookie, live=True)], tmp_path / "live").findings
    for log in (bookie / "ledgers" / "current").glob("*.log"):
        log.unlink()

    assert [] == live
    assert [] == _missing(tmp_path, "one")


def test_a_log_in_another_directory(tmp_path: Path) -> None:
    """With index files `dir_index` of a row is where its log is: a moved log changes the rows of
    the ledgers in it, and only those."""
    _make_bookie(tmp_path / "b", HierarchicalIndex)
    other = tmp_path / "b" / "more" / "current"
    other.mkdir(parents=True)
    (other / "5.log").write_bytes(LOG_HEADER)
    assert [] == _missing(tmp_path, "one")
    (tmp_path / "b" / "ledgers" / "current" / "1.log").rename(other / "1.log")
    assert [] == _missing(tmp_path, "two", since=tmp_path / "one")
    assert [] == _missing(tmp_path, "full")

    rows = open_dump(tmp_path / "two").read("entries").to_pylist()
    assert open_dump(tmp_path / "full").read("entries").to_pylist() == rows
    assert {(0, 0), (1, 1), (26, 0)} == {(row["ledger_id"], row["dir_index"]) for row in rows}
