"""The bytes of ledgers in entry logs: of directories and dumps alike, and what deleting frees."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir, LedgerId, LedgerStorage
from bkstore.index.api import Finding
from bkstore.offline.dump import dump
from bkstore.offline.usage.ledger_bytes import (
    LedgersOfLog,
    directory_logs,
    dump_logs,
    sum_bytes,
)

ONE, TWO, THREE = map(LedgerId.of, (1, 2, 3))
RECORD = 104  # 4 bytes of size, 8 of the ledger's id, 92 of the rest


def add(storage: LedgerStorage, ledger: LedgerId, first: int, count: int) -> None:
    """Add entries to a ledger."""
    for entry in range(first, first + count):
        record = ledger.ledger.to_bytes(8, "big") + entry.to_bytes(8, "big") + bytes(84)
        storage.add_entry(record, master_key=b"k" * 20)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a bookie's directory with two logs: ledgers 1 and 2 in the first, 1 in the second."""
    top = tmp_path / "b1"
    with LedgerStorage.open(top, "sorted") as storage:
        add(storage, ONE, 0, 10)
        add(storage, TWO, 0, 5)
        storage.checkpoint()
    with LedgerStorage.open(top, "sorted") as storage:  # a new log after a restart
        add(storage, ONE, 10, 3)
        storage.checkpoint()
    return top


def test_directory(directory: Path) -> None:
    """The bytes of each ledger in each log, the sizes before the records included."""
    findings: list[Finding] = []
    with BookieDir(directory, needs_index=False) as bookie:
        logs = list(directory_logs(bookie, findings))

    assert [{ONE: 10 * RECORD, TWO: 5 * RECORD}, {ONE: 3 * RECORD}] == [log.ledgers for log in logs]
    assert {"b1"} == {log.bookie for log in logs}
    assert [] == findings


def test_dump(directory: Path, tmp_path: Path) -> None:
    """A dump's table has the same logs, also where a log is in two batches."""
    pytest.importorskip("pyarrow")
    from bkstore.offline.reading.open_dump import open_dump
    from bkstore.offline.usage import ledger_bytes

    dump([directory], tmp_path / "dump")
    with BookieDir(directory, needs_index=False) as bookie:
        expected = list(directory_logs(bookie, []))
    opened = open_dump(tmp_path / "dump")
    assert expected == list(dump_logs(opened))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_bytes, "_BATCH_ROWS", 1)
        assert expected == list(dump_logs(opened))


def test_damage(directory: Path) -> None:
    """A log that cannot be read is a finding; the others are counted."""
    first, second = sorted(directory.rglob("*.log"))
    first.write_bytes(b"x" * 2000)
    findings: list[Finding] = []
    with BookieDir(directory, needs_index=False) as bookie:
        logs = list(directory_logs(bookie, findings))

    assert {ONE: 3 * RECORD} in [log.ledgers for log in logs]
    assert str(first) in {finding.file for finding in findings}
    assert second.exists()


def test_sums() -> None:
    """Bytes by bookie; a log in which a ledger stays needs compaction, one without does not."""
    logs = [
        LedgersOfLog("a", {ONE: 10, TWO: 20}),
        LedgersOfLog("a", {ONE: 1, THREE: 2}),
        LedgersOfLog("b", {ONE: 100}),
    ]
    sums = sum_bytes(logs, {ONE, TWO}, {THREE})

    assert {ONE, TWO} == set(sums)
    assert ({"a": 11, "b": 100}, 111, 110) == (
        sums[ONE].by_bookie,
        sums[ONE].total,
        sums[ONE].removable,
    )
    assert (20, 20) == (sums[TWO].total, sums[TWO].removable)
    assert {} == sum_bytes(logs, set(), {ONE})
    assert 0 == sum_bytes(logs, {ONE}, {ONE, THREE})[ONE].removable
