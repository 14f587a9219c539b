"""SparseRangeIndex: what upstream uses today, to be matched or beaten.

Rules: `LocalStreamRangeIndexCache`, `SparseRangeIndex`. Bounded by bytes; when it is full it
goes round the streams and takes one entry at a time out of their middle.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable

from bkstore.arguments import whole
from bkstore.streams.image.object_ranges import ObjectRanges

ENTRY_BYTES = 40
"""Three 64-bit numbers and 16 bytes for the header, as upstream counts."""

_KEPT = 3  # at each end of a stream's list


class _Entries:
    """The entries of one stream, by start."""

    __slots__ = ("objects", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.objects: list[int] = []


class SparseRangeIndex:
    """(stream, start) -> object of one node, up to `max_bytes`.

    Fed with every object that the node uploads, so it knows all until it is full. Then streams
    lose entries in turn, the first and last three of each not before nothing else is left.
    Threads: safe.

    >>> index = SparseRangeIndex(1 << 20)
    >>> index.add(5, ObjectRanges.of([(7, 0, 10)])); index.add(6, ObjectRanges.of([(7, 10, 30)]))
    >>> index.floor(7, 12), index.floor(7, 3), index.floor(8, 3)
    (6, 5, None)
    """

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self._max_entries = whole(ENTRY_BYTES)("max_bytes", max_bytes) // ENTRY_BYTES
        self._streams: OrderedDict[int, _Entries] = OrderedDict()  # in turn
        self._long: OrderedDict[int, None] = OrderedDict()  # those with more than their ends
        self._lock = threading.Lock()
        self.entries = 0
        self.evictions = 0

    def add(self, object_id: int, held: ObjectRanges) -> None:
        """Add an object's slices."""
        with self._lock:
            for stream, start in zip(held.streams.tolist(), held.starts.tolist()):
                entries = self._streams.get(stream)
                if entries is None:
                    entries = self._streams[stream] = _Entries()
                at = bisect_left(entries.starts, start)
                if entries.starts[at : at + 1] == [start]:
                    entries.objects[at] = object_id
                    continue
                entries.starts.insert(at, start)
                entries.objects.insert(at, object_id)
                self.entries += 1
                if len(entries.starts) > 2 * _KEPT:
                    self._long.setdefault(stream)
                while self.entries > self._max_entries:
                    self._evict()

    def remove(self, object_ids: Iterable[int]) -> None:
        """Remove the entries of objects that are gone. O(entries)."""
        gone = set(object_ids)
        if not gone:
            return
        with self._lock:
            for stream, entries in list(self._streams.items()):
                kept = [at for at, held in enumerate(entries.objects) if held not in gone]
                if len(kept) == len(entries.objects):
                    continue
                self.entries -= len(entries.objects) - len(kept)
                entries.starts = [entries.starts[at] for at in kept]
                entries.objects = [entries.objects[at] for at in kept]
                self._note(stream, entries)

    def floor(self, stream: int, offset: int) -> int | None:
        """Return the object of the greatest start up to `offset`, None if none is known."""
        with self._lock:
            entries = self._streams.get(stream)
            at = bisect_right(entries.starts, offset) if entries else 0
            return entries.objects[at - 1] if entries and at else None

    def _evict(self) -> None:
        """Take one entry out of the middle of the stream whose turn it is. O(1) streams."""
        stream = next(iter(self._long or self._streams))
        entries = self._streams[stream]
        at = min(_KEPT, len(entries.starts) - 1)
        del entries.starts[at], entries.objects[at]
        self.entries -= 1
        self.evictions += 1
        self._streams.move_to_end(stream)
        if stream in self._long:
            self._long.move_to_end(stream)
        self._note(stream, entries)

    def _note(self, stream: int, entries: _Entries) -> None:
        """Note that a stream has lost entries."""
        if len(entries.starts) <= 2 * _KEPT:
            self._long.pop(stream, None)
        if not entries.starts:
            del self._streams[stream]
