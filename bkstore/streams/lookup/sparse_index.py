"""SparseRangeIndex: the index that AutoMQ uses today, for comparison.

It follows AutoMQ's `LocalStreamRangeIndexCache` and `SparseRangeIndex`.
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
"""Three 64-bit numbers and 16 bytes for the header, as AutoMQ counts."""

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
        # Both in the order of eviction: the entries of all streams, and the streams that have
        # entries between those kept at their start and end (an ordered set: values mean nothing).
        self._entries_of_stream: OrderedDict[int, _Entries] = OrderedDict()
        self._streams_with_middle: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()
        self.entries = 0
        self.evictions = 0

    def add(self, object_id: int, ranges: ObjectRanges) -> None:
        """Add the starts of an object's slices. While the index is full, one entry is evicted for
        each that is added."""
        with self._lock:
            for stream, start in zip(ranges.streams.tolist(), ranges.starts.tolist()):
                entries = self._entries_of_stream.get(stream)
                if entries is None:
                    entries = self._entries_of_stream[stream] = _Entries()
                index = bisect_left(entries.starts, start)
                if entries.starts[index : index + 1] == [start]:  # the newest object counts
                    entries.objects[index] = object_id
                    continue
                entries.starts.insert(index, start)
                entries.objects.insert(index, object_id)
                self.entries += 1
                if len(entries.starts) > 2 * _KEPT_AT_ENDS:
                    self._streams_with_middle.setdefault(stream)  # does not move a known stream
                while self.entries > self._max_entries:
                    self._evict_next()

    def remove(self, object_ids: Iterable[int]) -> None:
        """Remove the entries of objects that are gone. O(entries)."""
        removed_ids = set(object_ids)
        if not removed_ids:
            return
        with self._lock:
            for stream, entries in list(self._entries_of_stream.items()):
                is_kept = [object_id not in removed_ids for object_id in entries.objects]
                if not all(is_kept):
                    self.entries -= is_kept.count(False)
                    entries.starts = list(compress(entries.starts, is_kept))
                    entries.objects = list(compress(entries.objects, is_kept))
                    self._dequeue_if_short(stream, entries)

    def floor(self, stream: int, offset: int) -> int | None:
        """Return the object of the greatest start up to `offset`, None if none is known."""
        with self._lock:
            entries = self._entries_of_stream.get(stream)
            count = bisect_right(entries.starts, offset) if entries else 0
            return entries.objects[count - 1] if entries and count else None

    def _evict_next(self) -> None:
        """Remove one entry of the stream whose turn it is: the first behind those kept at its
        start, so that the middle goes first, or its last entry if it has no more than these."""
        stream = next(iter(self._streams_with_middle or self._entries_of_stream))
        entries = self._entries_of_stream[stream]
        index = min(_KEPT_AT_ENDS, len(entries.starts) - 1)
        del entries.starts[index], entries.objects[index]
        self.entries -= 1
        self.evictions += 1
        self._entries_of_stream.move_to_end(stream)
        if stream in self._streams_with_middle:
            self._streams_with_middle.move_to_end(stream)
        self._dequeue_if_short(stream, entries)

    def _dequeue_if_short(self, stream: int, entries: _Entries) -> None:
        """Remove a stream from those with middle entries, or altogether, if it has none left."""
        if len(entries.starts) <= 2 * _KEPT_AT_ENDS:
            self._streams_with_middle.pop(stream, None)
        if not entries.starts:
            del self._entries_of_stream[stream]
