"""EntryCopier: copies entries of one ledger from sound replicas to a bookie, in bounded batches.

A record is copied as it is stored, after its digest was verified, and read again from the target.
Upstream: `client/LedgerFragmentReplicator`, which encodes entries anew and reads nothing again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.client.appends.quorum_add import make_sender
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.many_entries import read_records
from bkstore.errors import BkstoreError, BookieUnavailable, CorruptionError
from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array

_CHUNK_ENTRIES = 4096
"""Entries whose ids are listed at a time."""

_FIRST_READ_ENTRIES, _MAX_READ_ENTRIES = 16, 1024
"""Entries of one read: few in the first one, as their sizes are not known yet."""

_MAX_READ_BYTES = 1 << 20
"""About how many bytes are read, and then written, at a time."""

_MIN_RUN = 4
"""Consecutive entries from which on a batch read (BP-62) is sent instead of single reads."""


class RepairStopped(Exception):
    """The repair was stopped between two batches."""


class ByteRate:
    """Limits the bytes of all copies together; None = no limit. Thread-safe.

    >>> waits = []
    >>> rate = ByteRate(100.0, clock=lambda: 0.0, wait=waits.append)
    >>> rate.take(50); rate.take(10); waits
    [0.5]
    """

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._next_start = clock()
        self._lock = threading.Lock()

    def take(self, byte_count: int) -> None:
        """Wait until the bytes of earlier calls have had their time; then these may be sent."""
        if self._bytes_per_second is None:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._next_start)
            self._next_start = start + byte_count / self._bytes_per_second
        if start > now:
            self._wait(start - now)


class CopyResult(NamedTuple):
    """The entries that the target has now, and why each source did not have the others."""

    copied: Availability
    errors: dict[str, str]


class EntryCopier:
    """Copies entries of the ledger of `access`. `stop` ends a copy between two batches, by
    `RepairStopped`; `on_copied` is called with the entries and bytes of each. Thread-safe."""

    def __init__(
        self,
        access: LedgerAccess,
        rate: ByteRate,
        stop: threading.Event,
        on_copied: Callable[[int, int], None],
    ) -> None:
        self._access = access
        self._rate = rate
        self._stop = stop
        self._on_copied = on_copied

    def copy(
        self, entries: Availability, target: str, sources: Sequence[tuple[str, Availability]]
    ) -> CopyResult:
        """Copy entries to `target`, each from the first of `sources` that has it sound. A source is
        a bookie with the entries that it should have.

        Raises the error of the target if it does not take a record, or does not return it then.
        Memory: some 4,096 ids and 1 MiB of records, or one record if that is larger.
        """
        copied: list[Availability] = []
        errors: dict[str, str] = {}
        for chunk in iterate_ids(entries, _CHUNK_ENTRIES):
            missing = chunk
            for bookie, due in sources:
                is_due = due.contains_many(missing)
                if not is_due.any():
                    continue
                for batch in self._read(bookie, missing[is_due], errors):
                    self._write(target, batch)
                    missing = np.setdiff1d(missing, batch.entries)
                if not missing.size:
                    break
            copied.append(Availability.from_entries(np.setdiff1d(chunk, missing)))
        return CopyResult(unite(copied), errors)

    def _read(
        self, bookie: str, entry_ids: Int64Array, errors: dict[str, str]
    ) -> Iterator[RecordBatch]:
        """Yield the sound records that a bookie has of these entries; the first error that it gives
        goes to `errors`."""
        start, count = 0, _FIRST_READ_ENTRIES
        while start < entry_ids.size:
            self._check_stopped()
            requested = entry_ids[start : start + count]
            found: dict[int, BkstoreError] = {}
            read = partial(self._read_from, entry_ids=requested, errors=found)
            answer = self._access.call_bookie(bookie, read)
            failures = [*found.values(), *filter(None, [answer.error])]
            batch = answer.value
            if batch is not None and len(batch):
                decoded = self._access.coder.decode_batch(batch, self._access.ledger)
                failures += decoded.failed.values()
                is_sound = np.ones(len(batch), np.bool_)
                is_sound[list(decoded.failed)] = False
                sound = batch.take(np.flatnonzero(is_sound))
                if len(sound):
                    yield sound
                largest = int(batch.sizes.max())
                count = max(1, min(_MAX_READ_ENTRIES, _MAX_READ_BYTES // max(1, largest)))
            for error in failures:
                errors.setdefault(bookie, f"{type(error).__name__}: {error}")
            if batch is None or any(isinstance(error, BookieUnavailable) for error in failures):
                return
            start += requested.size

    def _read_from(
        self, client: BookieClient, entry_ids: Int64Array, errors: dict[int, BkstoreError]
    ) -> RecordBatch:
        """Return the records of these entries, by batch reads if they are consecutive."""
        errors.clear()  # left by a call to the bookie's former address
        batches: list[RecordBatch] = []
        remaining = entry_ids
        while remaining.size >= _MIN_RUN and client.batch_reads:
            run = _first_run(remaining)
            if run < _MIN_RUN:
                break
            try:
                batch = client.read_entries(
                    self._access.ledger, int(remaining[0]), run, _MAX_READ_BYTES
                )
            except BkstoreError:  # also if there are no batch reads: single reads have the reasons
                break
            if not len(batch):
                break
            batches.append(batch.first(run))
            remaining = remaining[len(batches[-1]) :]
        if remaining.size:
            batches.append(
                read_records(self._access, client, remaining.tolist(), errors, fence=False)
            )
        return RecordBatch.concatenate(batches)

    def _write(self, target: str, batch: RecordBatch) -> None:
        """Add records to the target as a recovery does, then read them again and compare."""
        self._rate.take(int(batch.sizes.sum()))
        self._check_stopped()
        framed = batch.framed()
        sent = self._access.call_bookie(target, make_sender(self._access, framed, recovery=True))
        if sent.error is not None:
            raise sent.error
        answer = self._access.call_bookie(target, lambda client: self._read_back(client, framed))
        if answer.error is not None:
            raise answer.error
        self._on_copied(len(batch), int(batch.sizes.sum()))

    def _read_back(self, client: BookieClient, batch: RecordBatch) -> None:
        """Raise an error unless the bookie returns the records of a batch as they are."""
        errors: dict[int, BkstoreError] = {}
        entry_ids = batch.entries.tolist()
        again = read_records(self._access, client, entry_ids, errors, fence=False)
        if errors:
            raise next(iter(errors.values()))
        if again.records() != batch.records():
            reason = f"{client.bookie_id} returns other bytes than were written"
            raise CorruptionError(None, None, f"ledger {self._access.ledger}: {reason}")

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise RepairStopped


def iterate_ids(entries: Availability, count: int) -> Iterator[Int64Array]:
    """Yield the ids of a set in ascending arrays of `count`, the last one of fewer.

    >>> [part.tolist() for part in iterate_ids(Availability.from_entries([1, 2, 3, 9]), 3)]
    [[1, 2, 3], [9]]
    """
    pending: list[Int64Array] = []
    size = 0
    for first, last in entries.iter_ranges():
        start = first
        while start <= last:
            part = np.arange(start, min(last + 1, start + count - size), dtype=np.int64)
            pending.append(part)
            size += part.size
            start += part.size
            if size == count:
                yield np.concatenate(pending)
                pending, size = [], 0
    if pending:
        yield np.concatenate(pending)


def unite(parts: Sequence[Availability]) -> Availability:
    """Return the union of sets, pair by pair, so that each group is merged O(log n) times."""
    sets = list(parts) or [Availability()]
    while len(sets) > 1:
        pairs = zip(sets[::2], sets[1::2])
        sets = [one | other for one, other in pairs] + ([sets[-1]] if len(sets) % 2 else [])
    return sets[0]


def _first_run(entry_ids: Int64Array) -> int:
    """Return how many ids at the start are consecutive."""
    breaks = np.flatnonzero(np.diff(entry_ids) != 1)
    return int(breaks[0]) + 1 if breaks.size else int(entry_ids.size)
