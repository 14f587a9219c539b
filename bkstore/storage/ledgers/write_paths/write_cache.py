"""WriteCache: records in memory that are not yet in index and entry log.

BookKeeper has two rules for duplicates: the skip list of sorted storage keeps the *first* of equal
entries (`EntryMemTable`), the write cache of db storage the *last* (`storage/ldb/WriteCache`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

import numpy as np

from bkstore.errors import InvalidArgument, TooManyRequests
from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import LedgerId, count_consecutive, is_ascending
from bkstore.index.api import sorted_distinct
from bkstore.storage.ledgers.write_paths.pending_values import (
    MIN_RUN_ENTRIES,
    EntryRun,
    LedgerValues,
    PendingValues,
)

ENTRY_OVERHEAD = 150
"""Bytes counted for an entry besides its record (measured): objects and a dict slot. An entry of a
batch takes 24, but counts the same, so that batches and single adds flush at the same record."""

_MAX_BATCH_RECORDS = 4096
_JOINED_BYTES = 1 << 18  # bytes of records that are written at once


class _RecordRun(EntryRun[bytes]):
    """The records of ascending entries, as one immutable buffer of frames."""

    def __init__(self, batch: RecordBatch) -> None:
        """Take a batch; records of one size are found without their offsets."""
        super().__init__(batch.entries)
        self.batch = batch
        size = int(batch.sizes[0])
        self._record_size = size if (batch.sizes == size).all() else None

    def value_at(self, index: int) -> bytes:
        size = self._record_size
        if size is not None:  # all records have one size: no array look-up
            start = SIZE_FIELD_BYTES + index * (SIZE_FIELD_BYTES + size)
        else:
            start, size = int(self.batch.offsets[index]), int(self.batch.sizes[index])
        return bytes(self.batch.buffer[start : start + size])


class WriteCache(PendingValues[bytes]):
    """Records that are not flushed yet, up to `limit` bytes (`ENTRY_OVERHEAD` counted in).

    >>> cache = WriteCache("first", 1000)
    >>> cache.put(LedgerId(ledger=7), 0, b"a" * 100), cache.size
    (True, 250)
    >>> cache.fits(800)
    False
    """

    def __init__(self, duplicates: Literal["first", "last"], limit: int) -> None:
        super().__init__(duplicates)
        self.limit = limit
        self.size = 0

    def fits(self, record_size: int) -> bool:
        """Return whether one more record of this size stays within the limit."""
        return self.size + record_size + ENTRY_OVERHEAD <= self.limit

    def has_room(self, size: int, auto_flush: bool) -> bool:
        """Return whether a record of `size` bytes fits; if not, the cache must be flushed. Without
        `auto_flush` raise `TooManyRequests` instead, so that the caller flushes. Raise
        `InvalidArgument` if the record would not fit into an empty cache either."""
        if self.fits(size):
            return True
        if size + ENTRY_OVERHEAD > self.limit:
            raise InvalidArgument(f"record of {size} bytes, the write cache has {self.limit}")
        if not auto_flush:
            raise TooManyRequests(f"the write cache of {self.limit} bytes is full: flush first")
        return False

    def count_fitting(self, batch: RecordBatch) -> int:
        """Return how many records of a batch stay within the limit, if all are new; at least 1."""
        if self.size + int(batch.sizes.sum()) + ENTRY_OVERHEAD * len(batch) <= self.limit:
            return max(len(batch), 1)
        end_sizes = np.cumsum(batch.sizes + ENTRY_OVERHEAD)
        return max(int(end_sizes.searchsorted(self.limit - self.size, "right")), 1)

    def put(self, ledger_id: LedgerId, entry_id: int, value: bytes) -> bool:
        """Store a record; return whether the entry is new. `size` counts replaced records too, as
        a bookie does, until the cache is flushed."""
        table = self._tables.get(ledger_id)
        if table is not None and entry_id > table.highest:  # fast path of the most frequent case
            table.highest = entry_id
            table.values[entry_id] = value
            self.count += 1
            self.size += len(value) + ENTRY_OVERHEAD
            return True
        is_new = super().put(ledger_id, entry_id, value)
        if is_new or self.duplicates == "last":
            self.size += len(value) + ENTRY_OVERHEAD
        return is_new

    def put_batch(self, ledger_id: LedgerId, batch: RecordBatch) -> None:
        """Store a framed batch of one ledger's records, in this order. If its ids ascend and are
        above all present, it is kept as a run: one copy of the buffer, with arrays of offsets. Else
        the records are stored one by one."""
        entries, table = batch.entries, self._find_or_make_table(ledger_id, int(batch.entries[0]))
        is_above_all = int(entries[0]) > table.highest
        if is_above_all and entries.size >= MIN_RUN_ENTRIES and is_ascending(entries):
            buffer, offsets = _immutable_bytes(batch.buffer), batch.offsets.copy()
            own_batch = RecordBatch.of_frames(entries.copy(), buffer, offsets, batch.sizes.copy())
            self.put_run(ledger_id, _RecordRun(own_batch))  # unlike `put`, does not add to `size`
            self.size += int(batch.sizes.sum()) + ENTRY_OVERHEAD * entries.size
        else:
            for entry, record in zip(entries.tolist(), batch.records()):
                self.put(ledger_id, entry, record)

    def get_run(self, ledger_id: LedgerId, start: int, count: int) -> RecordBatch:
        """Return the records of start, start + 1, ... up to a gap, at most `count`. Those of one
        call are either single records or of one run; call again for the next ones. About 50 ns a
        single record."""
        table = self._tables.get(ledger_id)
        if table is None:
            return RecordBatch.of([], [])
        if start in table.values or not table.run_starts:
            return _single_run(table, start, count)
        for run, id_slice in table.find_runs(start, start + count - 1):
            if run.entry_ids[id_slice][0] == start:
                return _slice_run(run, id_slice, table, start)
        return RecordBatch.of([], [])

    def drop(self, ledger_id: LedgerId) -> None:
        """Drop a ledger's records; `size` still counts replaced ones until the cache is empty."""
        table = self._tables.get(ledger_id)
        if table is not None:
            record_bytes = sum(map(len, table.values.values()))
            for run in table.runs:
                assert isinstance(run, _RecordRun)
                record_bytes += int(run.batch.sizes.sum())
            # The runs still have the records that single ones replaced.
            self.size -= record_bytes - _hidden_run_bytes(table) + ENTRY_OVERHEAD * table.count()
        super().drop(ledger_id)
        if not self.count:
            self.size = 0

    # -- flushing

    def list_ledger_ids(self) -> list[LedgerId]:
        """Return the ids of the ledgers in the cache, in unsigned order."""
        return sorted(self._tables)

    def batches(self, ledger_id: LedgerId) -> Iterator[RecordBatch]:
        """Yield a ledger's records by ascending id, as framed batches of about 256 KiB."""
        waiting_batches: list[RecordBatch] = []
        joined_bytes = 0
        for batch in _unjoined_batches(self._tables[ledger_id]):
            waiting_batches.append(batch)
            joined_bytes += len(batch.buffer)
            if joined_bytes >= _JOINED_BYTES:
                yield RecordBatch.concatenate(waiting_batches)
                waiting_batches, joined_bytes = [], 0
        if waiting_batches:
            yield RecordBatch.concatenate(waiting_batches)


def _immutable_bytes(buffer: bytes | memoryview) -> bytes | memoryview:
    """Return an immutable buffer: a copy, unless `buffer` is most of a `bytes` object."""
    if isinstance(buffer, memoryview) and isinstance(buffer.obj, bytes):
        return buffer if 2 * len(buffer) >= len(buffer.obj) else bytes(buffer)
    return bytes(buffer)


def _single_run(table: LedgerValues[bytes], start: int, count: int) -> RecordBatch:
    """Return consecutive single records from `start` on, up to a gap."""
    values, entry_ids = table.values, range(start, min(start + count, table.highest + 1))
    try:  # most ranges have no gap
        records = list(map(values.__getitem__, entry_ids))
    except KeyError:
        records = [values[entry] for entry in takewhile(values.__contains__, entry_ids)]
    return RecordBatch.of(records, np.arange(start, start + len(records)))


def _slice_run(
    run: EntryRun[bytes], id_slice: slice, table: LedgerValues[bytes], start: int
) -> RecordBatch:
    """Return records of consecutive ids from a run (records stored as one batch), up to a gap or to
    one that a record stored singly replaces. Copies the arrays, but not the records."""
    assert isinstance(run, _RecordRun)
    entries = run.entry_ids[id_slice]
    count = count_consecutive(entries, start)
    if table.hidden_run_values:
        replaced_ids = table.list_single_ids(start, start + count - 1)
        count = replaced_ids[0] - start if replaced_ids else count
    start_index = id_slice.start
    sliced = run.batch.between(start_index, start_index + count).framed()
    entries, offsets, sizes = sliced.entries.copy(), sliced.offsets.copy(), sliced.sizes.copy()
    return RecordBatch.of_frames(entries, sliced.buffer, offsets, sizes)


def _hidden_run_bytes(table: LedgerValues[bytes]) -> int:
    """Return the bytes of records in runs that single records replace."""
    if not table.hidden_run_values:
        return 0
    return sum(len(table.get_from_runs(entry) or b"") for entry in table.values)


def _unjoined_batches(table: LedgerValues[bytes]) -> Iterator[RecordBatch]:
    """Yield a ledger's records by ascending id, as framed batches of any size."""
    for single_ids, run in table.ids_and_runs():
        if run is None:
            for start in range(0, len(single_ids), _MAX_BATCH_RECORDS):
                batch_ids = single_ids[start : start + _MAX_BATCH_RECORDS]
                yield RecordBatch.of(list(map(table.values.__getitem__, batch_ids)), batch_ids)
            continue
        assert isinstance(run, _RecordRun)
        if not single_ids:
            yield run.batch
            continue
        single_records = RecordBatch.of(list(map(table.values.__getitem__, single_ids)), single_ids)
        joined = RecordBatch.concatenate([single_records, run.batch])
        # Single records replace those of the run: the first of equal entries stays.
        _, rows = sorted_distinct(joined.entries, np.arange(len(joined)), "first")
        yield joined.take(rows).framed()
