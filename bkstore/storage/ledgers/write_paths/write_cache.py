"""WriteCache: records that a storage holds in memory before they are in index and entry log.

Under one of the two rules of upstream: the skip list of sorted storage keeps the *first* of
equal entries (`EntryMemTable`), the write cache of db storage the *last*
(`storage/ldb/WriteCache`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Literal

import numpy as np

from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import LedgerId, consecutive, is_ascending
from bkstore.index.api import sorted_distinct
from bkstore.storage.ledgers.write_paths.pending import FEWEST, Pending, Run, Table

ENTRY_OVERHEAD = 150
"""Bytes that an entry counts beside its record: objects and a dict slot, as measured.

One of a batch takes 24; it counts the same, so that a flush comes at the same record whichever
way records came.
"""

_MOST = 4096
_ENOUGH = 1 << 18  # bytes of records that are written at once


class _Records(Run[bytes]):
    """The records of ascending entries, as one buffer of frames, which is `bytes`."""

    def __init__(self, batch: RecordBatch) -> None:
        super().__init__(batch.entries)
        self.batch = batch
        size = int(batch.sizes[0])
        self._size = size if (batch.sizes == size).all() else None

    def value(self, at: int) -> bytes:
        size = self._size
        if size is not None:  # where all are of one size, no look at the arrays
            start = PREFIX + at * (PREFIX + size)
        else:
            start, size = int(self.batch.offsets[at]), int(self.batch.sizes[at])
        return bytes(self.batch.buffer[start : start + size])


class WriteCache(Pending[bytes]):
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
        """Return whether one more record of that size stays within the limit."""
        return self.size + record_size + ENTRY_OVERHEAD <= self.limit

    def room(self, batch: RecordBatch) -> int:
        """Return how many records of a batch stay within the limit, if all are new; 1 at least."""
        if self.size + int(batch.sizes.sum()) + ENTRY_OVERHEAD * len(batch) <= self.limit:
            return max(len(batch), 1)
        ends = np.cumsum(batch.sizes + ENTRY_OVERHEAD)
        return max(int(ends.searchsorted(self.limit - self.size, "right")), 1)

    def put(self, name: LedgerId, entry: int, value: bytes) -> bool:
        """Store one record; return whether the entry is new here.

        Both copies of a replaced one count until the flush, as upstream counts them.
        """
        table = self._tables.get(name)
        if table is not None and entry > table.highest:  # the most frequent case, cut short
            table.highest = entry
            table.values[entry] = value
            self.count += 1
            self.size += len(value) + ENTRY_OVERHEAD
            return True
        new = super().put(name, entry, value)
        if new or self.duplicates == "last":
            self.size += len(value) + ENTRY_OVERHEAD
        return new

    def put_batch(self, name: LedgerId, batch: RecordBatch) -> None:
        """Store records of one ledger, in this order; a framed batch.

        A copy of the buffer where ids ascend from beyond all that are here, else one by one.
        """
        entries, table = batch.entries, self._table(name, int(batch.entries[0]))
        beyond = int(entries[0]) > table.highest
        if beyond and entries.size >= FEWEST and is_ascending(entries):
            own = RecordBatch.of_frames(
                entries.copy(), _own(batch.buffer), batch.offsets.copy(), batch.sizes.copy()
            )
            self.put_run(name, _Records(own))
            self.size += int(batch.sizes.sum()) + ENTRY_OVERHEAD * entries.size
        else:
            for entry, record in zip(entries.tolist(), batch.records()):
                self.put(name, entry, record)

    def get_run(self, name: LedgerId, start: int, count: int) -> RecordBatch:
        """Return the records of start, start + 1, ... up to a gap, at most `count`.

        Fewer where what follows lies elsewhere in memory: another call gives it. About 50 ns a
        record that came alone, a slice of those that came in a batch.
        """
        table = self._tables.get(name)
        if table is None:
            return RecordBatch.of([], [])
        if start in table.values or not table.firsts:
            return _single_run(table, start, count)
        for run, part in table.runs_in(start, start + count - 1):
            if run.entries[part][0] == start:
                return _slice_of(run, part, table, start)
        return RecordBatch.of([], [])

    def drop(self, name: LedgerId) -> None:
        """Forget a ledger's records; what was replaced counts until nothing is here."""
        table = self._tables.get(name)
        if table is not None:
            kept = sum(map(len, table.values.values()))
            for run in table.runs:
                assert isinstance(run, _Records)
                kept += int(run.batch.sizes.sum())
            self.size -= kept - _replaced_bytes(table) + ENTRY_OVERHEAD * table.count()
        super().drop(name)
        if not self.count:
            self.size = 0

    # -- flushing

    def names(self) -> list[LedgerId]:
        """Return the ledgers that have records here, in unsigned order."""
        return sorted(self._tables)

    def batches(self, name: LedgerId) -> Iterator[RecordBatch]:
        """Yield the records of a ledger by ascending id, as framed batches; small ones joined."""
        parts: list[RecordBatch] = []
        size = 0
        for batch in _batches(self._tables[name]):
            parts.append(batch)
            size += len(batch.buffer)
            if size >= _ENOUGH:
                yield RecordBatch.joined(parts)
                parts, size = [], 0
        if parts:
            yield RecordBatch.joined(parts)


def _own(buffer: bytes | memoryview) -> bytes | memoryview:
    """Return bytes that nobody changes: a copy, unless they are so and little else lies there."""
    if isinstance(buffer, memoryview) and isinstance(buffer.obj, bytes):
        return buffer if 2 * len(buffer) >= len(buffer.obj) else bytes(buffer)
    return bytes(buffer)


def _single_run(table: Table[bytes], start: int, count: int) -> RecordBatch:
    values, wanted = table.values, range(start, min(start + count, table.highest + 1))
    try:  # at once, as most runs have no gap
        records = list(map(values.__getitem__, wanted))
    except KeyError:
        records = [values[entry] for entry in takewhile(values.__contains__, wanted)]
    return RecordBatch.of(records, np.arange(start, start + len(records)))


def _slice_of(run: Run[bytes], part: slice, table: Table[bytes], start: int) -> RecordBatch:
    """Return consecutive records of a run, up to a gap or one that a single record replaces.

    Arrays of its own, as the caller may change them.
    """
    assert isinstance(run, _Records)
    entries = run.entries[part]
    count = consecutive(entries, start)
    if table.replaced:
        single = table.single_ids(start, start + count - 1)
        count = single[0] - start if single else count
    begin = part.start
    found = run.batch.between(begin, begin + count).framed()
    copies = (column.copy() for column in (found.entries, found.offsets, found.sizes))
    entries, offsets, sizes = copies
    return RecordBatch.of_frames(entries, found.buffer, offsets, sizes)


def _replaced_bytes(table: Table[bytes]) -> int:
    """Return the bytes of records of runs before which single ones go."""
    if not table.replaced:
        return 0
    return sum(len(table.in_run(entry) or b"") for entry in table.values)


def _batches(table: Table[bytes]) -> Iterator[RecordBatch]:
    """Yield framed batches by ascending id, as small as the pieces are."""
    for ids, run in table.pieces():
        if run is None:
            for at in range(0, len(ids), _MOST):
                some = ids[at : at + _MOST]
                yield RecordBatch.of(list(map(table.values.__getitem__, some)), some)
            continue
        assert isinstance(run, _Records)
        if not ids:
            yield run.batch
            continue
        single = RecordBatch.of(list(map(table.values.__getitem__, ids)), ids)
        both = RecordBatch.joined([single, run.batch])
        _, rows = sorted_distinct(both.entries, np.arange(len(both)), "first")
        yield both.at(rows).framed()
