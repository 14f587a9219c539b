"""What a check looked at: parts, processes, nothing at all, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bkstore import BookieDir, InvalidArgument, LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.check import Check, Coverage
from bkstore.offline.spilled_rows import rows_by_log
from tests.offline.check.small_trees import DIGEST, KINDS, PASSWORD, Kind, make_tree


def _checked(top: Path, **options: object) -> tuple[list[str], Coverage]:
    with BookieDir(top, needs_index=False) as bookie:
        checking = Check(bookie, **options)  # type: ignore[arg-type]
        return list(map(str, checking)), checking.coverage


def _harm(top: Path) -> None:
    """Cut one log, take another away, and damage a third."""
    with (top / "current" / "0.log").open("r+b") as file:
        file.truncate(3000)
    (top / "current" / "1.log").unlink()
    with (top / "current" / "2.log").open("r+b") as file:
        file.seek(1500)
        file.write(b"\xff" * 50)


@pytest.mark.parametrize("kind", ["interleaved", "db"])
def test_processes_find_the_same(tmp_path: Path, kind: Kind) -> None:
    """However many processes, findings and coverage are the same, in the same order."""
    make_tree(tmp_path, kind)
    _harm(tmp_path)
    one, alone = _checked(tmp_path, digest_type=DIGEST, password=PASSWORD)
    many, beside = _checked(tmp_path, digest_type=DIGEST, password=PASSWORD, jobs=3)

    assert len(one) > 5
    assert one == many
    assert alone == beside


def test_bytes_that_are_not_accounted_for(tmp_path: Path) -> None:
    """Bytes skipped are named as ranges; with all others they make up the file."""
    make_tree(tmp_path, "interleaved")
    _harm(tmp_path)
    _, seen = _checked(tmp_path)
    log = next(log for log in seen.logs if log.log_id == 2)
    ((start, end),) = log.unaccounted

    assert start <= 1500 < 1550 <= end < 1800
    assert end - start == log.unaccounted_bytes
    assert log.bytes == (
        log.header_bytes
        + log.record_bytes
        + log.map_bytes
        + log.padding_bytes
        + log.unaccounted_bytes
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_ledger(tmp_path: Path, kind: Kind) -> None:
    """Of one ledger, its rows, its state and its records are checked, and the rest is named."""
    make_tree(tmp_path, kind)
    found, seen = _checked(tmp_path, ledger=3)

    assert [] == found
    assert (40, 40, 1) == (seen.rows, seen.rows_checked, seen.states)
    assert (40, 1) == (seen.total("indexed"), seen.total("copies"))
    assert seen.total("others") == seen.total("records") - 41
    assert any("a part was requested" in part for part in seen.not_checked)


def test_one_log(tmp_path: Path) -> None:
    """Of one log, the rows into it and its records."""
    make_tree(tmp_path, "db")
    _, whole = _checked(tmp_path)
    found, seen = _checked(tmp_path, log_id=1)
    (log,) = [log for log in whole.logs if log.log_id == 1]

    assert [] == found
    assert [log] == seen.logs
    assert log.rows == seen.rows == seen.rows_checked


def test_a_log_that_is_not_here(tmp_path: Path) -> None:
    """A part that is not there is nothing checked."""
    make_tree(tmp_path, "db")
    found, seen = _checked(tmp_path, log_id=1000)

    assert [] == found
    assert seen.is_empty
    assert ["nothing was checked: there are no index rows, ledgers or records"] == seen.describe()


def test_nothing(tmp_path: Path) -> None:
    """An empty directory is no check that was passed."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "lastId").write_text("0\n")
    _, seen = _checked(tmp_path)

    assert seen.is_empty


def test_an_index_alone(tmp_path: Path) -> None:
    """An index without its logs is checked: each row points to where nothing is."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(7, [0, 1, 2], [1028, 1100, 1200])
    found, seen = _checked(tmp_path)

    assert ["no-log: 0.log: offset 1028: entries 0-2 of ledger 7: no such entry log"] == found
    assert not seen.is_empty


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    """Without a digest type digests are left out, and said to be."""
    make_tree(tmp_path, "db")
    _, without = _checked(tmp_path)
    _, verified = _checked(tmp_path, digest_type=DIGEST)

    assert any("digests" in line for line in without.describe())
    assert not any("digests" in line for line in verified.describe())
    assert (0, 187) == (without.total("digests"), verified.total("digests"))


def test_arguments(tmp_path: Path) -> None:
    """A password alone, a wrong type and a wrong number are refused before anything is read."""
    make_tree(tmp_path, "db")
    with BookieDir(tmp_path) as bookie:
        for wrong in ({"password": "x"}, {"digest_type": "MD5"}, {"jobs": 0}, {"log_id": -1}):
            with pytest.raises(InvalidArgument):
                Check(bookie, **wrong)  # type: ignore[arg-type]


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many rows and records take no more memory: 200,000 rows more would be 6 MB
    as they are spilled, and more in every other form."""
    monkeypatch.setattr(rows_by_log, "PIECE_ROWS", 1 << 14)
    monkeypatch.setattr(rows_by_log, "STRETCH_BITS", 20)
    peaks = []
    for ledgers in (1, 3):
        top = tmp_path / str(ledgers)
        _write(top, range(1, ledgers + 1))
        with BookieDir(top) as bookie:
            scan = bookie.scan
            monkeypatch.setattr(bookie, "scan", lambda findings: scan(1 << 13, findings))  # noqa: B023
            tracemalloc.start()
            found = list(Check(bookie))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

        assert [] == found
    assert peaks[1] < 64 << 20
    assert peaks[1] < peaks[0] + (5 << 20)


def _write(top: Path, ledgers: range) -> None:
    """Write 100,000 entries a ledger."""
    coder = Coder(DIGEST)
    with LedgerStorage.open(top, storage="db") as storage:
        for ledger in ledgers:
            storage.set_master_key(ledger, b"k" * 20)
            for first in range(0, 100_000, 20_000):
                entries = np.arange(first, first + 20_000)
                storage.add_batch(coder.encode_batch(ledger, entries, [b"x" * 20] * 20_000))
