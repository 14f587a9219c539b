"""Range deletes of many files together: for each key the newest one that covers it."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from bkstore.formats.rocksdb.table.range_deletes import RangeDelete
from bkstore.formats.rocksdb.table.rows import UInt64Array, VersionedRows
from bkstore.ids import Int64Array
from bkstore.index.rocks.tables.key_order import (
    WORD_BYTES,
    BoolArray,
    as_words,
    first_above,
    first_not_below,
)


class RangeCover:
    """The keys that range deletes cover, cut at all their ends into fragments: from ``bounds[i]``
    up to the next bound the newest delete has ``sequences[i]``, 0 if there is none there.

    >>> cover = RangeCover([RangeDelete(b"b", b"e", 5), RangeDelete(b"d", b"g", 9)])
    >>> cover.bounds, cover.sequences
    ([b'b', b'd', b'g'], [5, 9, 0])
    >>> cover.newest_at(b"c"), cover.newest_at(b"g")
    (5, 0)
    """

    def __init__(self, deletes: Iterable[RangeDelete]) -> None:
        """Cut the deletes into fragments that do not overlap: from ``bounds[i]`` to the next bound,
        rows older than ``sequences[i]`` are deleted (0: none). Some 5 us a delete."""
        self.bounds: list[bytes] = []
        self.sequences: list[int] = []
        # Go through all starts and stops in order. Between two of them the deletes that are open,
        # begun and not ended, stay the same, and the newest of them counts.
        pending = sorted(delete for delete in deletes if delete.start < delete.stop)
        stops = sorted(delete.stop for delete in pending)
        starts = [delete.start for delete in pending]
        open_deletes: list[tuple[int, bytes]] = []  # newest first: (-sequence, stop)
        next_delete = 0
        for bound in sorted({*starts, *stops}):
            while next_delete < len(pending) and pending[next_delete].start <= bound:
                delete = pending[next_delete]
                heapq.heappush(open_deletes, (-delete.sequence, delete.stop))
                next_delete += 1
            # Drop the newest ones that have ended. Those below the top may have ended too, which
            # does not matter before they come to the top.
            while open_deletes and open_deletes[0][1] <= bound:
                heapq.heappop(open_deletes)
            newest = -open_deletes[0][0] if open_deletes else 0  # its sequence number
            if not self.sequences or self.sequences[-1] != newest:
                self.bounds.append(bound)
                self.sequences.append(newest)

    def newest_at(self, key: bytes) -> int:
        """Return the sequence number of the newest delete that covers a key, 0 if none does."""
        fragment = bisect_right(self.bounds, key) - 1
        return self.sequences[fragment] if fragment >= 0 else 0


class CoveredRows:
    """Which rows with keys of `words` * 8 bytes the deletes of a `RangeCover` have deleted."""

    def __init__(self, cover: RangeCover, words: int) -> None:
        """Convert the fragments' bounds, which may have any length, to keys of `words` words."""
        width = WORD_BYTES * words
        bounds, sequences = cover.bounds, cover.sequences
        # A bound that is longer than the highest key of this width, and begins with it, is above
        # all keys: its fragment has none of them.
        while bounds and bounds[-1][:width] == b"\xff" * width and len(bounds[-1]) > width:
            bounds, sequences = bounds[:-1], sequences[:-1]
        self._bounds = as_words([_within(bound, width) for bound in bounds], words)
        self._sequences = np.array(sequences, np.int64)

    def find_deleted(self, rows: VersionedRows) -> BoolArray | None:
        """Return which of the rows are older than a range delete that covers them (bool[n]), None
        if none is. Rows are sorted by key."""
        if not self._sequences.size or not len(rows):
            return None
        # The rows' keys lie in the fragments from that of the first row to that of the last one.
        # The fragments that begin among the rows cut these into parts with one number each.
        after_first = first_above(self._bounds, rows.keys[:, 0])
        after_last = first_above(self._bounds, rows.keys[:, -1])
        fragments = np.arange(after_first, after_last)
        positions = self._positions(rows.keys, fragments)
        bounds = np.concatenate(([0], positions, [len(rows)]))
        # The first part is in the fragment before those, or before all fragments (0: no delete).
        first_sequence = self._sequences[after_first - 1 : after_first] if after_first else [0]
        sequences = np.concatenate((first_sequence, self._sequences[fragments]))
        if not sequences.any():
            return None
        is_deleted: BoolArray = rows.sequences < np.repeat(sequences, np.diff(bounds))
        return is_deleted if is_deleted.any() else None

    def _positions(self, keys: UInt64Array, fragments: Int64Array) -> Int64Array:
        """Return how many of the sorted keys are below the start of each fragment."""
        starts = self._bounds[:, fragments]
        low = np.searchsorted(keys[0], starts[0])
        high = np.searchsorted(keys[0], starts[0], "right")
        # Where no key has the first word of the start, that word decides. Otherwise search the
        # other words among these keys.
        for index in np.flatnonzero(low < high).tolist():
            part = keys[1:, low[index] : high[index]]
            if part.shape[0]:
                low[index] += first_not_below(part, starts[1:, index])
        positions: Int64Array = low.astype(np.int64)
        return positions


def _within(bound: bytes, width: int) -> bytes:
    """Return a bound of at most this width, at or above which the same keys of this width are. A
    longer bound is above the key that it begins with: the one after that is the first."""
    if len(bound) <= width:
        return bound
    return (int.from_bytes(bound[:width], "big") + 1).to_bytes(width, "big")
