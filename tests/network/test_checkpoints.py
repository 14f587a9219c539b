"""Checkpoints of a bookie that serves: when they are made, what becomes of it when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.cli.server_process import checkpoint_until_stopped, print_state_change
from bkstore.errors import ReadOnlyError
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.network.checkpoints import CheckpointRunner
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from bkstore.testing.faults import FaultPlan
from bkstore.wire.admin.counters import OperationCounters
from bkstore.wire.client import WireClient
from bkstore.wire.server import BookieServer

KEY = master_key(b"")
JOURNAL = JournalOptions(preallocate=64 << 10)


def _record(entry: int) -> bytes:
    return encode(Entry(7, entry, entry - 1, entry + 1, b"x"), "CRC32C")


@pytest.fixture
def plan() -> FaultPlan:
    """Return a disk."""
    return FaultPlan()


@pytest.fixture
def bookie(tmp_path: Path, plan: FaultPlan) -> Iterator[Bookie]:
    """Yield a bookie on it."""
    with Bookie.open(tmp_path / "b", "sorted", journal=JOURNAL, files=plan) as opened:
        yield opened


def test_only_when_something_was_written(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a write since the last one there is nothing to make durable."""
    made: list[object] = []
    checkpoint = bookie.checkpoint
    monkeypatch.setattr(bookie, "checkpoint", lambda: made.append(checkpoint()))
    bookie.add_entry(_record(0), KEY)
    checkpoint()
    checkpoints = CheckpointRunner(bookie)
    checkpoints.run_if_needed()

    assert [] == made

    bookie.add_entry(_record(1), KEY)
    checkpoints.run_if_needed()
    checkpoints.run_if_needed()

    assert 1 == len(made)
    assert (None, 0) == (checkpoints.problem, checkpoints.failures)


class _Turns:
    """A server as the loop sees it: at each turn something happens, behind the last it ends."""

    def __init__(self, *turns: object) -> None:
        self.turns = list(turns)
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        if not self.turns:
            return True
        turn = self.turns.pop(0)
        if callable(turn):
            turn()
        return False


def test_a_full_disk(bookie: Bookie, plan: FaultPlan, capsys: pytest.CaptureFixture[str]) -> None:
    """While checkpoints fail for want of room the bookie is read, and refuses adds; it tries again
    every ten seconds, and with room it takes adds again. One line tells of each, and the metrics
    do."""
    counters = OperationCounters()
    with BookieServer(bookie, observer=counters) as server, WireClient(server.address) as client:
        checkpoints = CheckpointRunner(bookie)
        counters.watch_read_only(lambda: server.read_only)

        def changed() -> None:
            server.read_only = checkpoints.problem is not None
            print_state_change(checkpoints.problem)

        checkpoints.on_problem_changed = changed
        told: list[tuple[object, ...]] = []

        def tell() -> None:
            name = "bkstore_checkpoint_failures_total"
            failed = counters.registry.get_sample_value(name)
            read_only = counters.registry.get_sample_value("bkstore_server_read_only")
            told.append((client.read_entry(7, 0), server.read_only, read_only, failed))

        def fill() -> None:
            client.add_entry(_record(0), KEY)
            plan.disk_full(0)

        def full() -> None:
            tell()
            with pytest.raises(ReadOnlyError):
                client.add_entry(_record(1), KEY)

        def free() -> None:
            tell()
            plan.free(1 << 30)

        class Admin:
            pass

        admin = Admin()
        admin.counters = counters  # type: ignore[attr-defined]
        turns = _Turns(fill, full, free, tell)
        checkpoint_until_stopped(turns, checkpoints, admin, 60.0)  # type: ignore[arg-type]

        assert 1 == client.add_entry(_record(1), KEY)
    record = _record(0)

    assert [(record, True, 1, 1), (record, True, 1, 2), (record, False, 0, 2)] == told
    assert [60, 10, 10, 60, 60] == turns.waited
    first, second = capsys.readouterr().err.splitlines()

    assert first.startswith("bkstore: read-only: a checkpoint failed: ")
    assert first.endswith("No space left on device")
    assert "bkstore: writable again" == second


def test_a_sync_that_failed(tmp_path: Path, plan: FaultPlan) -> None:
    """What a failed sync lost is not known: the bookie stays read-only until it is opened anew,
    and then has what was acknowledged."""
    bookie = Bookie.open(tmp_path / "b", "sorted", journal=JOURNAL, files=plan)
    checkpoints = CheckpointRunner(bookie)
    bookie.add_entry(_record(0), KEY)
    plan.fail_sync(2)
    for _ in range(3):
        checkpoints.run_if_needed()

        assert str(checkpoints.problem).startswith("a checkpoint failed: ")
    assert 3 == checkpoints.failures
    with pytest.raises(ReadOnlyError):
        bookie.close()
    with Bookie.open(tmp_path / "b") as again:
        assert _record(0) == again.read_entry(7, 0)
