"""SparseRangeIndex: the index that upstream uses today, for comparison.

It follows upstream's `LocalStreamRangeIndexCache` and `SparseRangeIndex`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from itertools import compress

from bkstore.arguments import integer
from bkstore.streams.image.object_ranges import ObjectRanges

ENTRY_BYTES = 40
"""Three 64-bit numbers and 16 bytes for the header, as upstream counts."""

_KEPT_AT_ENDS = 3  # entries at each end of a stream's list that are evicted last


class _Entries:
    """The entries of one stream, sorted by start."""

    __slots__ = ("objects", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.objects: list[int] = []


class SparseRangeIndex:
    """(stream, start) -> object of one node, up to `max_bytes`. Threads: safe.

    Every object that the node uploads is added, so the index is complete until it is full. Then
    streams lose middle entries in turn, the first and last three only when no others are left.

    >>> index = SparseRangeIndex(1 << 20)
    >>> index.add(5, ObjectRanges.of([(7, 0, 10)])); index.add(6, ObjectRanges.of([(7, 10, 30)]))
    >>> index.floor(7, 12), index.floor(7, 3), index.floor(8, 3)
    (6, 5, None)
    """

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self._max_entries = integer(ENTRY_BYTES)("max_bytes", max_bytes) // ENTRY_BYTES
        # In the order of eviction: all streams, and those with entries between their ends.
        self._streams: OrderedDict[int, _Entries] = OrderedDict()
        self._with_middle: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()
        self.entries = 0
        self.evictions = 0

    def add(self, object_id: int, ranges: ObjectRanges) -> None:
        """Add an object's slices; evicts entries when the index is full."""
        with self._lock:
            for stream, start in zip(ranges.streams.tolist(), ranges.starts.tolist()):
                entries = self._streams.get(stream)
                if entries is None:
                    entries = self._streams[stream] = _Entries()
                index = bisect_left(entries.starts, start)
                if entries.starts[index : index + 1] == [start]:
                    entries.objects[index] = object_id
                    continue
                entries.starts.insert(index, start)
                entries.objects.insert(index, object_id)
                self.entries += 1
                if len(entries.starts) > 2 * _KEPT_AT_ENDS:
                    self._with_middle.setdefault(stream)
                while self.entries > self._max_entries:
                    self._evict()

    def remove(self, object_ids: Iterable[int]) -> None:
        """Remove the entries of objects that are gone. O(entries)."""
        removed_ids = set(object_ids)
        if not removed_ids:
            return
        with self._lock:
            for stream, entries in list(self._streams.items()):
                keeps = [object_id not in removed_ids for object_id in entries.objects]
                if not all(keeps):
                    self.entries -= keeps.count(False)
                    entries.starts = list(compress(entries.starts, keeps))
                    entries.objects = list(compress(entries.objects, keeps))
                    self._after_removal(stream, entries)

    def floor(self, stream: int, offset: int) -> int | None:
        """Return the object of the greatest start up to `offset`, None if none is known."""
        with self._lock:
            entries = self._streams.get(stream)
            count = bisect_right(entries.starts, offset) if entries else 0
            return entries.objects[count - 1] if entries and count else None

    def _evict(self) -> None:
        """Remove one entry from the middle of the stream whose turn it is. Visits one stream."""
        stream = next(iter(self._with_middle or self._streams))
        entries = self._streams[stream]
        index = min(_KEPT_AT_ENDS, len(entries.starts) - 1)
        del entries.starts[index], entries.objects[index]
        self.entries -= 1
        self.evictions += 1
        self._streams.move_to_end(stream)
        if stream in self._with_middle:
            self._with_middle.move_to_end(stream)
        self._after_removal(stream, entries)

    def _after_removal(self, stream: int, entries: _Entries) -> None:
        if len(entries.starts) <= 2 * _KEPT_AT_ENDS:
            self._with_middle.pop(stream, None)
        if not entries.starts:
            del self._streams[stream]
