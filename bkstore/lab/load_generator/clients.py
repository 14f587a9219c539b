"""Clients: threads that run operations one after the other until the time is over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.lab.load_generator.key_draws import EntryKeys, KeyDraws, KeyOrder, entry_ids_of
from bkstore.lab.load_generator.latencies import LatencyHistogram
from bkstore.lab.load_generator.operations import OperationMix
from bkstore.lab.load_generator.target import LoadTarget

_STEPS_PER_CHUNK = 1024
SLICES = 20
"""The duration is divided into so many slices, to show the rate over time."""

FLUSH = "flush"
"""What the lists of operations call the flushes, which are none of the mix."""


@dataclass(frozen=True)
class LoadPlan:
    """What clients do: the mix, the entries that exist, sizes, and for how long.

    A client ends after `max_operations`, in chunks of 1,024, if the time is not over before: for
    runs that must not depend on the speed of the machine.
    """

    mix: OperationMix
    keys: EntryKeys
    key_order: KeyOrder
    ledger_entries: int
    batch_entries: int
    flush_entries: int
    seconds: float
    clients: int
    seed: int
    max_operations: int | None = None


@dataclass
class DrivenLoad:
    """The load as it was: latencies by operation, operations by slice of the time, entries."""

    histograms: dict[str, LatencyHistogram] = field(default_factory=dict)
    per_slice: Int64Array = field(default_factory=lambda: np.zeros(SLICES, np.int64))
    written_entries: int = 0
    deleted_entries: int = 0

    def merge(self, other: DrivenLoad) -> None:
        """Add the result of another client."""
        for operation, histogram in other.histograms.items():
            if operation in self.histograms:
                self.histograms[operation].merge(histogram)
            else:
                self.histograms[operation] = histogram
        self.per_slice = self.per_slice + other.per_slice
        self.written_entries += other.written_entries
        self.deleted_entries += other.deleted_entries


class SharedLedgers:
    """What the clients of a run share: the ledgers to be deleted, and the entries not flushed."""

    def __init__(self, deletable: Sequence[tuple[LedgerId, int]], first_ledger: int) -> None:
        self.deletable = deque(deletable)  # (ledger, entries), oldest first
        self.is_stopping = False  # an error, or an interrupt, ends the run early
        self._next_ledger, self._unflushed, self._lock = first_ledger, 0, Lock()

    def new_ledger(self) -> LedgerId:
        """Return the id of a ledger that nobody has written to."""
        with self._lock:
            self._next_ledger += 1
            return LedgerId(0, self._next_ledger - 1)

    def is_flush_due(self, written: int, limit: int) -> bool:
        """Count `written` entries, written by any client. Return True if `limit` or more are not
        flushed: the caller then flushes, for all clients, and the count begins anew."""
        with self._lock:
            self._unflushed += written
            if self._unflushed < limit:
                return False
            self._unflushed = 0
            return True


class _Step(NamedTuple):
    """One operation to be timed: a call, and how many entries it writes or deletes."""

    operation: str
    call: Callable[..., object]
    arguments: tuple[Any, ...]
    written: int = 0
    deleted: int = 0


class _Client:
    """One thread's operations, in chunks: what a chunk writes is prepared before its steps."""

    def __init__(
        self, target: LoadTarget, plan: LoadPlan, state: SharedLedgers, number: int
    ) -> None:
        """Prepare the client of this number; `state` is what all clients share."""
        self._target, self._plan, self._state = target, plan, state
        self._rng = np.random.default_rng((plan.seed, 1, number))
        self._draws = KeyDraws(plan.key_order, plan.keys, plan.seed, number)
        # The ledger that this client writes, and how many entries it has.
        self._ledger, self._ledger_entries = state.new_ledger(), 0
        self.result = DrivenLoad()
        self.error: BaseException | None = None

    def run(self, start_line: Barrier) -> None:
        """Run chunks of steps until the time is over. All clients begin at the same time: they wait
        for each other at `start_line`. An error is kept in `error` for the thread that started this
        one, and stops the other clients."""
        try:
            steps = self._prepare_chunk()
            start_line.wait()
            begin = time.perf_counter_ns()
            end = begin + int(self._plan.seconds * 1e9)
            while self._run_steps(steps, begin, end) and not self._has_done_enough():
                steps = self._prepare_chunk()
        except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
            self.error = error
            self._state.is_stopping = True
            start_line.abort()

    def _has_done_enough(self) -> bool:
        limit = self._plan.max_operations
        return limit is not None and int(self.result.per_slice.sum()) >= limit

    def _run_steps(self, steps: list[_Step], begin: int, end: int) -> bool:
        """Run and time the steps until the time `end` (nanoseconds, as `begin`), or until another
        client fails; return whether there is time left. Results are recorded at the end, not
        between the steps, so that this takes no time of theirs."""
        operations: list[str] = []
        latencies: list[int] = []
        ends: list[int] = []
        now = begin

        def time_call(operation: str, call: Callable[..., object], *arguments: Any) -> None:
            """Make a call, and record its operation, latency and end."""
            nonlocal now
            start = time.perf_counter_ns()
            call(*arguments)
            now = time.perf_counter_ns()
            operations.append(operation)
            latencies.append(now - start)
            ends.append(now)

        for operation, call, arguments, written, deleted in steps:
            time_call(operation, call, *arguments)
            self.result.written_entries += written
            self.result.deleted_entries += deleted
            if written and self._state.is_flush_due(written, self._plan.flush_entries):
                time_call(FLUSH, self._target.flush)
            if now >= end or self._state.is_stopping:
                break
        self._record(operations, np.array(latencies), np.array(ends) - begin)
        return now < end and not self._state.is_stopping

    def _record(self, operations: list[str], latencies: Int64Array, ends: Int64Array) -> None:
        """Add operations to the result: latencies by operation, and the number of operations in
        each slice of the time, by their `ends` in nanoseconds since the begin. Flushes are no
        operations of the mix, so the slices do not count them."""
        names = np.array(operations)
        for operation in dict.fromkeys(operations):
            if operation not in self.result.histograms:
                self.result.histograms[operation] = LatencyHistogram()
            self.result.histograms[operation].record(latencies[names == operation])
        slices = np.minimum(ends * SLICES // int(self._plan.seconds * 1e9), SLICES - 1)
        counts = np.bincount(slices[names != FLUSH], minlength=SLICES)
        self.result.per_slice = self.result.per_slice + counts

    # -- the steps of a chunk

    def _prepare_chunk(self) -> list[_Step]:
        """Return the next steps. All that is not the target's own work is done here, untimed:
        records are encoded, and the ledgers and entries to read are drawn."""
        self._leave_full_ledger()
        names, deletions = self._choose_operations()
        singles, batches = self._prepare_writes(names)
        # Each step gets an entry that can be read, even if it reads none.
        rows = self._draws.draw(len(names))
        ledger_numbers, entry_ids = (part.tolist() for part in self._plan.keys.split_rows(rows))
        steps: list[_Step] = []
        for operation, ledger_number, entry_id in zip(names, ledger_numbers, entry_ids):
            ledger_id = self._plan.keys.ledgers[ledger_number]
            if operation == "read":
                steps.append(self._read_step(ledger_id, entry_id))
            elif operation == "batch":
                steps.append(self._batch_step(ledger_id, entry_id))
            elif operation == "write":
                step = _Step("write", self._target.write_one, (next(singles),), written=1)
                steps.append(step)
            elif operation == "add":
                count = self._plan.batch_entries
                step = _Step("add", self._target.write, (next(batches),), written=count)
                steps.append(step)
            else:
                steps.append(self._delete_step(*next(deletions)))
        return steps

    def _leave_full_ledger(self) -> None:
        """Begin a new ledger if this one is full: all its writes were those of earlier chunks, so
        that it can be deleted from now on."""
        if self._ledger_entries >= self._plan.ledger_entries:
            self._state.deletable.append((self._ledger, self._ledger_entries))
            self._ledger, self._ledger_entries = self._state.new_ledger(), 0

    def _choose_operations(self) -> tuple[list[str], Iterator[tuple[LedgerId, int]]]:
        """Return the names of the next operations, and an iterator with a ledger and its number of
        entries for each delete. Where no ledger is left to be deleted, a delete becomes a write."""
        names: list[str] = []
        deletions: list[tuple[LedgerId, int]] = []
        for number in self._plan.mix.draw(_STEPS_PER_CHUNK, self._rng).tolist():
            operation = self._plan.mix.names[number]
            if operation == "delete":
                try:
                    deletions.append(self._state.deletable.popleft())
                except IndexError:
                    operation = "write"
            names.append(operation)
        return names, iter(deletions)

    def _prepare_writes(self, names: list[str]) -> tuple[Iterator[Any], Iterator[Any]]:
        """Return two iterators over prepared arguments: for each "write" one entry, for each "add"
        one batch. Entry ids ascend in the order of the operations, over both kinds."""
        batch_entries = self._plan.batch_entries
        written = np.array(
            [{"write": 1, "add": batch_entries}.get(operation, 0) for operation in names]
        )
        # How many entries of the ledger come before those of each operation.
        first_entries = self._ledger_entries + np.cumsum(written) - written
        self._ledger_entries += int(written.sum())
        is_single = np.array([operation == "write" for operation in names])
        is_batch = np.array([operation == "add" for operation in names])

        def entry_ids_from(position: int, count: int) -> Int64Array:
            return entry_ids_of(self._plan.key_order, position, count)

        # With an empty array, as there may be no single writes.
        single_ids = [entry_ids_from(first, 1) for first in first_entries[is_single].tolist()]
        singles = self._target.prepare_singly(
            self._ledger, np.concatenate([np.empty(0, np.int64), *single_ids])
        )
        batches = (
            self._target.prepare(self._ledger, entry_ids_from(first, batch_entries))
            for first in first_entries[is_batch].tolist()
        )
        return iter(singles), iter(list(batches))

    def _read_step(self, ledger: LedgerId, entry_number: int) -> _Step:
        entry = int(self._plan.keys.entry_ids[entry_number])
        return _Step("read", self._target.read, (ledger, entry))

    def _batch_step(self, ledger: LedgerId, entry_number: int) -> _Step:
        entry_ids = self._plan.keys.entry_ids[entry_number:][: self._plan.batch_entries]
        return _Step("batch", self._target.read_batch, (ledger, entry_ids))

    def _delete_step(self, ledger: LedgerId, entries: int) -> _Step:
        return _Step("delete", self._target.delete, (ledger,), deleted=entries)


def run_load(target: LoadTarget, plan: LoadPlan, state: SharedLedgers) -> DrivenLoad:
    """Run all clients at the same time, each in a thread; return their merged measurements. Raises
    the first error of a client, after the others have ended their current operation."""
    clients = [_Client(target, plan, state, number) for number in range(plan.clients)]
    start_line = Barrier(len(clients))
    threads = [Thread(target=client.run, args=(start_line,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:  # an interrupt: nobody may use the target when the caller closes it
        state.is_stopping = True
        for thread in threads:
            thread.join()
    errors = [client.error for client in clients if client.error is not None]
    for error in errors:
        if not isinstance(error, BrokenBarrierError):  # this only follows another client's error
            raise error
    result = DrivenLoad()
    for client in clients:
        result.merge(client.result)
    return result
