"""Clients of a load: what they call, in which order, and what they count. No times."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from bkstore.errors import NoSuchEntry
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.lab.load_generator.clients import (
    FLUSH,
    DrivenLoad,
    LoadPlan,
    SharedLedgers,
    run_load,
)
from bkstore.lab.load_generator.index_target import IndexTarget
from bkstore.lab.load_generator.key_draws import EntryKeys
from bkstore.lab.load_generator.operations import OperationMix
from bkstore.lab.load_generator.storage_target import StorageTarget
from bkstore.lab.load_generator.target import LoadTarget
from bkstore.storage.options import StorageKind

READ = [LedgerId(0, number) for number in range(3)]
UNREAD = [LedgerId(0, number) for number in range(3, 6)]
PLAN = LoadPlan(
    mix=OperationMix.parse("read,write,batch,add,delete", "40:40:10:9:1"),
    keys=EntryKeys(READ, np.arange(50)),
    key_order="uniform",
    ledger_entries=50,
    batch_entries=10,
    flush_entries=500,
    seconds=3_600,
    clients=2,
    seed=3,
    max_operations=4_000,
)


class Recorder(LoadTarget):
    """A target that notes the calls."""

    row_bytes = 1

    def __init__(self) -> None:
        self.lock = Lock()
        self.calls: list[tuple[str, Any]] = []

    def _note(self, call: str, argument: Any) -> None:
        with self.lock:
            self.calls.append((call, argument))

    def prepare(self, ledger: LedgerId, entry_ids: Int64Array) -> Any:
        """Return the ledger and its entries."""
        return ledger, entry_ids.tolist()

    def prepare_singly(self, ledger: LedgerId, entry_ids: Int64Array) -> list[Any]:
        """Return ledger and entry of each."""
        return [(ledger, [entry]) for entry in entry_ids.tolist()]

    def write(self, prepared: Any) -> None:
        """Note it."""
        self._note("add", prepared)

    def write_one(self, prepared: Any) -> None:
        """Note it."""
        self._note("write", prepared)

    def read(self, ledger: LedgerId, entry: int) -> None:
        """Note it."""
        self._note("read", (ledger, entry))

    def read_batch(self, ledger: LedgerId, entry_ids: Int64Array) -> int:
        """Note it."""
        self._note("batch", (ledger, entry_ids.tolist()))
        return len(entry_ids)

    def delete(self, ledger: LedgerId) -> None:
        """Note it."""
        self._note("delete", ledger)

    def flush(self) -> None:
        """Note it."""
        self._note(FLUSH, None)

    def close(self) -> None:
        """Do nothing."""


def _state() -> SharedLedgers:
    return SharedLedgers([(ledger, 50) for ledger in UNREAD], 6)


@pytest.fixture(scope="module")
def recorded() -> tuple[list[tuple[str, Any]], DrivenLoad]:
    """Return the calls of a run on the recorder, and its result."""
    target = Recorder()
    result = run_load(target, PLAN, _state())
    return target.calls, result


Recorded = tuple[list[tuple[str, Any]], DrivenLoad]


def test_each_call_is_counted_once(recorded: Recorded) -> None:
    """Histograms have as many latencies as there were calls; slices all but the flushes."""
    calls, result = recorded
    counts = {name: sum(call == name for call, _ in calls) for name in (*PLAN.mix.names, FLUSH)}

    assert counts == {name: result.histograms[name].count for name in counts}
    assert len(calls) - counts[FLUSH] == result.per_slice.sum()
    assert counts["write"] + 10 * counts["add"] == result.written_entries
    assert result.written_entries // 500 - 1 <= counts[FLUSH] <= result.written_entries // 500


def test_reads_are_of_what_stays(recorded: Recorded) -> None:
    """Reads are of the first ledgers' entries, batches in a row; deletes are of others."""
    calls, _ = recorded
    for call, argument in calls:
        if call == "read":
            assert argument[0] in READ
            assert 0 <= argument[1] < 50
        elif call == "batch":
            ledger, entries = argument
            assert ledger in READ
            assert list(range(entries[0], min(entries[0] + 10, 50))) == entries
        elif call == "delete":
            assert argument not in READ


def test_writes_ascend(recorded: Recorded) -> None:
    """A ledger's entries are 0, 1, 2, ... however they are written, by one client; a ledger that is
    deleted is written no more."""
    calls, result = recorded
    written: dict[LedgerId, list[int]] = defaultdict(list)
    deleted: list[LedgerId] = []
    for call, argument in calls:
        if call in ("write", "add"):
            assert argument[0] not in deleted
            written[argument[0]] += argument[1]
        elif call == "delete":
            deleted.append(argument)

    assert len(written) > 2
    assert 2 * 4 * 1_024 == result.per_slice.sum()
    for ledger, entries in written.items():
        assert list(range(len(entries))) == entries, ledger
    assert set(UNREAD) <= set(deleted)  # in any order: a client may be late with its call
    assert len(set(deleted)) == len(deleted)
    gone = sum(50 if ledger in UNREAD else len(written[ledger]) for ledger in deleted)
    assert gone == result.deleted_entries


def test_the_time_ends_a_run() -> None:
    """Without a number of operations the time is what ends it; the slices are all of the time."""
    result = run_load(Recorder(), replace(PLAN, seconds=0.05, max_operations=None), _state())

    assert sum(h.count for n, h in result.histograms.items() if n != FLUSH) == (
        result.per_slice.sum()
    )
    assert result.per_slice.sum() >= 1


def test_without_ledgers_to_delete_there_are_writes() -> None:
    """Where only deletes are wanted, ledgers are written to be deleted."""
    target = Recorder()
    plan = replace(PLAN, mix=OperationMix.parse("delete"), clients=1)
    run_load(target, plan, _state())

    assert [("delete", ledger) for ledger in UNREAD] == target.calls[:3]
    assert "write" == target.calls[3][0]


@pytest.mark.parametrize("clients", [1, 3])
def test_an_error_ends_the_run(clients: int) -> None:
    """The first error of a client is raised, and the others stop, long before the time is over."""

    class Broken(Recorder):
        def read(self, ledger: LedgerId, entry: int) -> None:
            if len(self.calls) > 100:
                raise NoSuchEntry("gone")
            super().read(ledger, entry)

    with pytest.raises(NoSuchEntry, match="gone"):
        run_load(Broken(), replace(PLAN, clients=clients, max_operations=None), _state())


def test_an_error_before_the_start_ends_the_run() -> None:
    """A client that fails while it prepares keeps nobody waiting."""

    class Unprepared(Recorder):
        def prepare_singly(self, ledger: LedgerId, entry_ids: Int64Array) -> list[Any]:
            raise NoSuchEntry("never")

    with pytest.raises(NoSuchEntry, match="never"):
        run_load(Unprepared(), PLAN, _state())


@pytest.mark.parametrize("index_class", [HierarchicalIndex, RocksIndex])
def test_an_index_has_what_is_live(index_class: Any, tmp_path: Path) -> None:
    """After a run the index has the entries that were filled and written, less those deleted."""
    with index_class(tmp_path / "index", writable=True) as index:
        target = IndexTarget(index, 100)
        for ledger in (*READ, *UNREAD):
            target.write(target.prepare(ledger, np.arange(50)))
        result = run_load(target, PLAN, _state())
        rows = sum(batch.entry_id.size for batch in index.scan())

        assert 300 + result.written_entries - result.deleted_entries == rows
        with pytest.raises(NoSuchEntry):
            target.read(READ[0], 50)
        assert 5 == target.read_batch(READ[0], np.arange(45, 60))


@pytest.mark.parametrize("kind", ["sorted", "interleaved", "db"])
@pytest.mark.parametrize("with_journal", [False, True])
def test_a_storage_bears_all_operations(
    kind: StorageKind, with_journal: bool, tmp_path: Path
) -> None:
    """Storages and bookies take each operation; batches are of as many entries as asked."""
    target = StorageTarget(tmp_path / "storage", kind, 100, journal=with_journal)
    for ledger in (*READ, *UNREAD):
        target.write(target.prepare(ledger, np.arange(50)))
    target.flush()
    result = run_load(target, replace(PLAN, max_operations=500), _state())

    assert 10 == target.read_batch(READ[0], np.arange(10))
    # An entry of 100 bytes has a header of 32 bytes and a digest of 4.
    assert 136 == target.row_bytes
    assert 2 * 1_024 == result.per_slice.sum()
    target.close()
