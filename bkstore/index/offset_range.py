"""Where does a search for a stream's offset begin? Start offsets learnt from loaded objects.

What this is: (stream, node) -> ascending start offsets -> object id. An answer is a lower bound
of a search in the node's list of objects: an index that lacks entries, or names an object that is
gone, makes the search longer and never wrong. What it is not: a map of the offsets themselves;
ends and holes are known to the loaded object alone. Proposed in AutoMQ/automq#2731.
"""

from __future__ import annotations

import math
import operator
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Literal

import numpy as np

from bkstore.arguments import call, choice, number, shown, whole
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

DEFAULT_TTL = 600.0
"""Seconds that an item lives."""

DEFAULT_MAX_ITEMS = 200_000

DEFAULT_MAX_ENTRIES = 4_000_000
"""64 MB at 16 bytes an entry, as much as the filters beside this index may take; 20 objects for
each of the most items."""

_SWEEP = 2048  # entries that one call lets go for their age: some 0.2 ms
_ITEM_BYTES = 350  # key, array, item and its place in the table, beside 16 bytes an entry

Key = tuple[int, int]
Reason = Literal["age", "items", "entries"]


class _OffsetItem:
    """The entries of one stream on one node, one at least, each start distinct.

    `data` has n start offsets and then their n object ids: one array of 16 bytes an entry, where
    a sorted map of Python numbers takes some 100. `since` is when its life began. Not safe beside
    writers: the index has the lock.

    >>> item = _OffsetItem(0.0, 686, 14)
    >>> item.put(0, 3), item.put(686, 22), item.floor(700), item.size
    (None, 14, (686, 22), 2)
    """

    __slots__ = ("data", "since")

    def __init__(self, since: float, start: int, object_id: int) -> None:
        self.since = since
        self.data = array("q", (start, object_id))  # one array: half the fixed cost of two

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.data) >> 1

    def find(self, start: int, object_id: int) -> int:
        """Return the number of the entry at `start` that names this object; -1 if none does."""
        size = self.size
        at = bisect_left(self.data, start, 0, size)
        same = at < size and self.data[at] == start and self.data[size + at] == object_id
        return at if same else -1

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Return (start, object id) of the greatest start <= offset."""
        size = self.size
        at = bisect_right(self.data, offset, 0, size) - 1
        return None if at < 0 else (self.data[at], self.data[size + at])

    def put(self, start: int, object_id: int) -> int | None:
        """Add an entry and return None; where the start is there, return whom it named."""
        data, size = self.data, self.size
        at = size if data[size - 1] < start else bisect_left(data, start, 0, size)
        if at < size and data[at] == start:
            before, data[size + at] = data[size + at], object_id
            return before
        data.insert(size + at, object_id)
        data.insert(at, start)
        return None

    def remove(self, at: int) -> None:
        """Take one entry out."""
        del self.data[self.size + at], self.data[at]

    def objects(self) -> array[int]:
        """Return the object ids."""
        return self.data[self.size :]


class OffsetRangeIndex:
    """(stream, node) -> start offsets -> object id: lower bounds, learnt as objects are loaded.

    Incomplete is never wrong, only slow. An item is what is known of one stream on one node. It
    lives `ttl` seconds from the first write of its generation (``expire_after="use"``: from its
    last write or look-up); above `max_items` items or `max_entries` entries the oldest goes,
    whole. Let go and written again, it is a new generation that no eviction due before touches.

    No thread runs behind it. A call lets items of up to some 2000 entries go for their age, and
    never answers from one that is due; the properties let all go, O(entries). Memory: 16 bytes an
    entry and about 350 an item. Any number that fits int64 is an offset or an id; `clock` gives
    seconds.

    Threads: safe, under one lock. Fork: make it anew in the child. Source of the rules: AutoMQ's
    prototype (pull request 2710) without its defects.

    >>> index = OffsetRangeIndex()
    >>> index.put_object(4, 14, np.array([420000]), np.array([686]))
    >>> index.put_object(4, 22, np.array([420000, 7]), np.array([1033, 0]))
    >>> index.floor(420000, 4, 1000), index.floor(420000, 4, 500), index.floor(7, 5, 0)
    ((686, 14), None, None)
    >>> index.remove(420000, 4, 686, 14), index.items, index.entries
    (True, 2, 2)
    """

    def __init__(
        self,
        *,
        ttl: float = DEFAULT_TTL,
        expire_after: Literal["write", "use"] = "write",
        max_items: int = DEFAULT_MAX_ITEMS,
        max_entries: int = DEFAULT_MAX_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ttl = ttl if ttl == math.inf else number(above=True)("ttl", ttl)
        self.expire_after = choice("write", "use")("expire_after", expire_after)
        self.max_items = whole(1)("max_items", max_items)
        self.max_entries = whole(1)("max_entries", max_entries)
        self._clock = call("clock", clock)
        self._by_use = expire_after == "use"
        self._lock = Lock()
        self._items: OrderedDict[Key, _OffsetItem] = OrderedDict()  # in the order of `since`
        self._entries = 0
        # object -> (node, when the oldest of its items began): each of its entries is here
        self._complete: dict[int, tuple[int, float]] = {}
        self._evictions: dict[Reason, int] = {"age": 0, "items": 0, "entries": 0}

    # -- learning

    def put(self, stream: int, node: int, start: int, object_id: int) -> None:
        """Note that an object's slice of a stream begins at `start`; the last put of one wins.

        O(log n) of the item's n entries, and a move of those behind.
        """
        _check_int64(stream, node, start, object_id)
        with self._lock:
            now = self._clock()
            self._put((stream, node), start, object_id, now)
            self._make_room(now)

    def put_object(
        self, node: int, object_id: int, streams: Int64Array, starts: Int64Array
    ) -> None:
        """Note all streams of a loaded object. O(streams), about 1 us each.

        O(1) if the object was put before and all its entries are still here.
        """
        _check_int64(node, object_id)
        numbers, offsets = np.asarray(streams), np.asarray(starts)
        if numbers.shape != offsets.shape or numbers.ndim != 1:
            raise InvalidArgument(f"{numbers.shape} streams have {offsets.shape} starts")
        if numbers.size and {numbers.dtype, offsets.dtype} != {np.dtype(np.int64)}:
            raise InvalidArgument(f"int64 wanted, not {numbers.dtype} and {offsets.dtype}")
        with self._lock:
            now = self._clock()
            self._sweep(now)
            of, since = self._complete.get(object_id, (node, -math.inf))
            if not numbers.size or (of == node and now - since < self.ttl):
                return
            oldest = now
            for stream, start in zip(numbers.tolist(), offsets.tolist()):
                oldest = min(oldest, self._put((stream, node), start, object_id, now))
            self._complete[object_id] = (node, oldest)
            self._make_room(now)

    def _put(self, key: Key, start: int, object_id: int, now: float) -> float:
        """Add one entry, and return when the life of its item began."""
        item = self._live(key, now)
        if item is None:
            self._items[key] = _OffsetItem(now, start, object_id)
            self._entries += 1
            return now
        before = item.put(start, object_id)
        if before is None:
            self._entries += 1
        elif before != object_id:
            self._complete.pop(before, None)
        return item.since

    # -- asking

    def floor(self, stream: int, node: int, offset: int) -> tuple[int, int] | None:
        """Return (start, object id) of the greatest start <= offset; None if none is known.

        The object holds the stream from `start` on, or was compacted away: then `remove` the
        entry and ask again. O(log n).
        """
        with self._lock:
            now = self._clock()
            self._sweep(now)
            item = self._live((stream, node), now)
            return None if item is None else item.floor(offset)

    # -- forgetting

    def remove(self, stream: int, node: int, start: int, object_id: int) -> bool:
        """Take out an entry that was found, its object being gone; return whether it was here.

        An entry that names another object by now stays.
        """
        key = (stream, node)
        with self._lock:
            item = self._live(key, self._clock())
            at = -1 if item is None else item.find(start, object_id)
            if item is None or at < 0:
                return False
            item.remove(at)
            self._entries -= 1
            self._complete.pop(object_id, None)
            if not item.size:
                del self._items[key]
            return True

    def forget_objects(self, object_ids: Iterable[int]) -> None:
        """Forget that these objects were put. Their entries stay until they are found dead."""
        with self._lock:
            for object_id in object_ids:
                self._complete.pop(object_id, None)

    def clear(self) -> None:
        """Forget everything but the counters."""
        with self._lock:
            self._items.clear()
            self._complete.clear()
            self._entries = 0

    # -- letting go; under the lock

    def _live(self, key: Key, now: float) -> _OffsetItem | None:
        """Return an item that is not due; by use, it is the youngest now."""
        item = self._items.get(key)
        if item is None:
            return None
        if now - item.since >= self.ttl:
            self._evict(key, "age")
            return None
        if self._by_use:
            item.since = now
            self._items.move_to_end(key)
        return item

    def _sweep(self, now: float, most: int = _SWEEP) -> None:
        while most > 0 and self._items:
            key = next(iter(self._items))
            if now - self._items[key].since < self.ttl:
                return
            most -= self._evict(key, "age")

    def _make_room(self, now: float) -> None:
        self._sweep(now)
        while len(self._items) > self.max_items or self._entries > self.max_entries:
            key = next(iter(self._items))
            if now - self._items[key].since >= self.ttl:
                self._evict(key, "age")
            else:
                self._evict(key, "items" if len(self._items) > self.max_items else "entries")

    def _evict(self, key: Key, reason: Reason) -> int:
        item = self._items.pop(key)
        self._entries -= item.size
        self._evictions[reason] += 1
        for object_id in item.objects():
            self._complete.pop(object_id, None)
        return item.size

    # -- about it

    @property
    def items(self) -> int:
        """(stream, node) pairs that are known and not due."""
        return self._counted()[0]

    @property
    def entries(self) -> int:
        """Start offsets that are known and not due."""
        return self._counted()[1]

    @property
    def nbytes(self) -> int:
        """Estimated bytes of all items and entries."""
        items, entries = self._counted()
        return items * _ITEM_BYTES + entries * 16

    @property
    def evictions(self) -> dict[Reason, int]:
        """Items let go so far, by reason: "age", "items" (too many), "entries" (too many)."""
        with self._lock:
            self._sweep(self._clock(), self._entries)
            return dict(self._evictions)

    def _counted(self) -> tuple[int, int]:
        with self._lock:
            self._sweep(self._clock(), self._entries)
            return len(self._items), self._entries

    def __repr__(self) -> str:
        items, entries = self._counted()
        return f"<OffsetRangeIndex: {entries} entries of {items} streams on their nodes>"


def _check_int64(*numbers: int) -> None:
    for given in numbers:
        try:
            fits = -(2**63) <= operator.index(given) < 2**63 and not isinstance(given, bool)
        except TypeError:
            fits = False
        if not fits:
            raise InvalidArgument(f"{shown(given)} is not an integer that fits int64")
