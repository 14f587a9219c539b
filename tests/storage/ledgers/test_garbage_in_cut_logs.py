"""Entry logs that a kill cut inside their last record are collected; other damage keeps a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.testing.faults import flip_byte

KEY = b"k" * 20
STORAGES = pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
CODERS = pytest.mark.parametrize("digest", ["CRC32C", "HMAC"])
HEADER, SIZE = 1024, 4 + 32 + 20 + 100  # of each record with HMAC; CRC32C has 16 bytes less


def records(ledger: int, entries: range, digest: str = "HMAC") -> list[bytes]:
    """Return records of a ledger, each with bytes of its own."""
    coder = Coder(digest, "pw")
    return coder.encode_many(ledger, entries, [bytes([7 * e % 256]) * 100 for e in entries])


def unclosed_log(top: Path, storage: Any, digest: str = "HMAC") -> Path:
    """Make a log without ledgers map: ledgers 1 and 2, ten entries each; return its path.

    Ledger 3 lies in the log behind it.
    """
    with LedgerStorage.open(top, storage) as opened:
        for ledger in (1, 2):
            opened.add_entries(records(ledger, range(10), digest), master_key=KEY)
        opened.flush()
    with LedgerStorage.open(top, storage) as opened:
        opened.add_entries(records(3, range(2), digest), master_key=KEY)
    log = top / "current" / "0.log"
    size = 4 + len(records(1, range(1), digest)[0])
    data = log.read_bytes()[: HEADER + 20 * size]
    log.write_bytes(data[:12] + bytes(12) + data[24:])  # no ledgers map was named yet
    return log


def cut(log: Path, count: int) -> None:
    """Take bytes off the end of a log."""
    log.write_bytes(log.read_bytes()[:-count])


@STORAGES
@CODERS
@pytest.mark.parametrize("left", [1, 4, 20, 100])
def test_torn_log_without_living_ledgers_goes(
    tmp_path: Path, storage: Any, digest: str, left: int
) -> None:
    """A log that ends `left` bytes into its last record goes when its ledgers are deleted.

    It stays while one of them lives. The cut is told.
    """
    log = unclosed_log(tmp_path, storage, digest)
    cut(log, 4 + len(records(1, range(1), digest)[0]) - left)
    with LedgerStorage.open(tmp_path, storage) as opened:
        first = opened.collect_garbage([2, 3], threshold=None)

        assert ([], 1) == (first.removed_logs, len(first.findings))
        assert log.exists()
        assert records(2, range(9), digest) == opened.read_entries(2, 0, 9).records()

        report = opened.collect_garbage([3], threshold=None)

        assert [(0, 0)] == report.removed_logs
        assert not log.exists()
        assert records(3, range(2), digest) == opened.read_entries(3, 0).records()
    with LedgerStorage.open(tmp_path, storage) as opened:
        assert [3] == [name.ledger for name in opened.ledgers()]
        assert [] == opened.collect_garbage().findings


@STORAGES
@pytest.mark.parametrize("transactional", [False, True])
def test_torn_log_is_compacted(tmp_path: Path, storage: Any, transactional: bool) -> None:
    """A torn log of which little is wanted is compacted, and goes.

    The entry that was cut is in the index no more: it was written again behind.
    """
    log = unclosed_log(tmp_path, storage)
    cut(log, 1)
    with LedgerStorage.open(tmp_path, storage) as opened:
        opened.add_entries(records(2, range(10))[9:])  # as a replay does
        report = opened.collect_garbage([2, 3], threshold=0.8, transactional=transactional)

        assert (0, 0) in report.removed_logs
        assert (0, 0) in report.compacted_logs
        assert not log.exists()
        assert records(2, range(10)) == opened.read_entries(2, 0).records()
        assert [] == opened.collect_garbage([2, 3], threshold=None).findings


@STORAGES
@pytest.mark.parametrize("threshold", [None, 0.9])
def test_entry_of_a_living_ledger_in_the_cut(
    tmp_path: Path, storage: Any, threshold: float | None
) -> None:
    """Where the index says that a whole record was there the log stays, and is told of again."""
    log = unclosed_log(tmp_path, storage)
    cut(log, 9 * SIZE + 5)  # of ledger 2 nothing is left that can be read
    for _ in range(2):
        with LedgerStorage.open(tmp_path, storage) as opened:
            for _ in range(2):
                report = opened.collect_garbage([2, 3], threshold=threshold)

                assert [(str(log), HEADER + 10 * SIZE)] == [
                    (found.file, found.offset) for found in report.findings
                ]
                assert ([], []) == (report.removed_logs, report.compacted_logs)
        assert log.exists()


@STORAGES
def test_damage_inside_a_log_keeps_it(tmp_path: Path, storage: Any) -> None:
    """A log with damage before its end stays when its ledgers are gone; a finding names it."""
    log = unclosed_log(tmp_path, storage)
    data = bytearray(log.read_bytes())
    data[HEADER + 5 * SIZE] = 0x70  # a size beyond the end, and records behind it
    log.write_bytes(data)
    with LedgerStorage.open(tmp_path, storage) as opened:
        report = opened.collect_garbage([3])

        assert [("damage", str(log), HEADER + 5 * SIZE)] == [
            (found.severity, found.file, found.offset) for found in report.findings
        ]
        assert (0, 0) not in report.removed_logs
    assert log.exists()


@STORAGES
def test_two_damages_keep_a_log(tmp_path: Path, storage: Any) -> None:
    """One inside and a cut at the end: the log stays."""
    log = unclosed_log(tmp_path, storage)
    cut(log, 5)
    flip_byte(log, HEADER + 5 * SIZE)
    with LedgerStorage.open(tmp_path, storage) as opened:
        report = opened.collect_garbage([3])

        assert [HEADER + 5 * SIZE, HEADER + 19 * SIZE] == [f.offset for f in report.findings]
    assert log.exists()


@STORAGES
@pytest.mark.parametrize("size", [1, 4, 20, 1023])
def test_log_cut_in_its_header(tmp_path: Path, storage: Any, size: int) -> None:
    """No record can be in a log that ends before them; nothing of it is wanted, and it goes."""
    log = unclosed_log(tmp_path, storage)
    data = log.read_bytes()
    with LedgerStorage.open(tmp_path, storage) as opened:
        opened.collect_garbage([3])
    log.write_bytes(data[:size])
    with LedgerStorage.open(tmp_path, storage) as opened:
        assert (0, 0) in opened.collect_garbage([3], threshold=None).removed_logs
        assert records(3, range(2)) == opened.read_entries(3, 0).records()
    assert not log.exists()


def test_index_that_cannot_be_read_keeps_a_torn_log(tmp_path: Path) -> None:
    """Damage in an index file is told, and nothing is removed on account of it."""
    log = unclosed_log(tmp_path, "interleaved")
    cut(log, 5)
    (index,) = (tmp_path / "current").rglob("3.idx")
    data = bytearray(index.read_bytes())
    data[HEADER] = 0xFF  # a negative location
    index.write_bytes(data)
    with LedgerStorage.open(tmp_path, "interleaved") as opened:
        report = opened.collect_garbage([3], threshold=None)

        assert {str(log), str(index)} == {found.file for found in report.findings}
        assert [] == report.removed_logs
    assert log.exists()
