"""SoundReader: reads entries of one ledger from bookies, and yields those whose digest matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.client.bookie_answers import NOT_FOUND_ERRORS
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.many_entries import read_records
from bkstore.errors import BkstoreError, BookieUnavailable, CorruptionError, SystemRefused
from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array

CHUNK_ENTRIES = 4096
"""Entries whose ids are listed at a time."""

_FIRST_READ_ENTRIES, _MAX_READ_ENTRIES = 16, 1024
"""Entries of one read: few in the first one, as their sizes are not known yet."""

_MAX_READ_BYTES = 1 << 20
"""About how many bytes are read at a time."""

_MIN_RUN = 4
"""Consecutive entries from which on a batch read (BP-62) is sent instead of single reads."""


class SoundReader:
    """Reads entries of the ledger of `access`; `check_stopped` raises an error to stop a read
    between two batches. Thread-safe."""

    def __init__(self, access: LedgerAccess, check_stopped: Callable[[], object]) -> None:
        self._access = access
        self._check_stopped = check_stopped

    def read(
        self, bookie: str, entry_ids: Int64Array, errors: dict[str, BkstoreError]
    ) -> Iterator[RecordBatch]:
        """Yield the sound records that a bookie has of these entries; `errors` gets its error for
        the others: the first one that leaves it open whether it has them, else the first one.

        A bookie that does not answer is asked no more. Raises `SystemRefused` for what this machine
        lacks.
        """
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
                if isinstance(error, SystemRefused):
                    raise error
                if bookie not in errors or (is_open(error) and not is_open(errors[bookie])):
                    errors[bookie] = error
            if any(isinstance(error, BookieUnavailable) for error in failures):
                return
            if batch is None:  # the request failed as a whole: the others would too
                return
            start += requested.size

    def _read_from(
        self, client: BookieClient, entry_ids: Int64Array, errors: dict[int, BkstoreError]
    ) -> RecordBatch:
        """Return the records that a bookie has of these entries (int64[n], ascending): by batch
        reads while at least `_MIN_RUN` are consecutive, the rest singly; `errors` gets those of the
        single reads."""
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
            except SystemRefused:
                raise
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


def is_open(error: BkstoreError) -> bool:
    """Return whether an error of a read leaves it open whether the bookie has a sound copy.

    >>> is_open(BookieUnavailable("no answer")), is_open(CorruptionError(None, None, "bad digest"))
    (True, False)
    """
    return not isinstance(error, (*NOT_FOUND_ERRORS, CorruptionError))


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
