"""OffsetRangeIndex: where to begin the search for a stream's offset, learnt from loaded objects. It
maps (stream, node) -> ascending start offsets -> object id. A result is a lower bound for a search
in the node's list of objects: if the index lacks entries, or names an object that is gone, the
search takes longer but is never wrong. It does not hold ends and gaps of offset ranges: only the
loaded object has them. Proposed in AutoMQ/automq#2731."""

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

from bkstore.arguments import choice, describe_value, function, integer, number
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

DEFAULT_TTL = 600.0
"""Seconds until an item expires."""

DEFAULT_MAX_ITEMS = 200_000

DEFAULT_MAX_ENTRIES = 4_000_000
"""64 MB at 16 bytes an entry, as the filters beside this index take; 20 objects an item."""

_MAX_SWEPT_ENTRIES = 2048  # entries that one call evicts for their age: some 0.2 ms
_ITEM_BYTES = 350  # key, array, item and its place in the table, beside 16 bytes an entry

ItemKey = tuple[int, int]
EvictionReason = Literal["age", "items", "entries"]


class _OffsetItem:
    """The entries of one stream on one node: at least one, with distinct starts.
    `starts_and_objects` has n start offsets, ascending, and then their n object ids: one array of
    16 bytes an entry, where a sorted map of Python numbers takes some 100. The age of the item
    counts from the time `age_start`. Not thread-safe: the index locks.

    >>> item = _OffsetItem(0.0, 686, 14)
    >>> item.put(0, 3), item.put(686, 22), item.floor(700), item.size
    (None, 14, (686, 22), 2)
    """

    __slots__ = ("age_start", "starts_and_objects")

    def __init__(self, age_start: float, start: int, object_id: int) -> None:
        self.age_start = age_start
        self.starts_and_objects = array("q", (start, object_id))

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.starts_and_objects) >> 1

    def find_position(self, start: int, object_id: int) -> int:
        """Return the position of the entry with this start and object, -1 if there is none."""
        size, starts_and_objects = self.size, self.starts_and_objects
        position = bisect_left(starts_and_objects, start, 0, size)
        if position < size and starts_and_objects[position] == start:
            return position if starts_and_objects[size + position] == object_id else -1
        return -1

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Return (start, object id) of the greatest start <= offset."""
        size, starts_and_objects = self.size, self.starts_and_objects
        position = bisect_right(starts_and_objects, offset, 0, size) - 1
        if position < 0:
            return None
        # The object ids follow the starts in the same array.
        return starts_and_objects[position], starts_and_objects[size + position]

    def put(self, start: int, object_id: int) -> int | None:
        """Add an entry and return None. If the start exists, replace its object id and return the
        previous one."""
        # One array has all starts, ascending, and then the object ids in the same order.
        starts_and_objects, size = self.starts_and_objects, self.size
        if starts_and_objects[size - 1] < start:  # the usual case: behind all others
            position = size
        else:
            position = bisect_left(starts_and_objects, start, 0, size)
        if position < size and starts_and_objects[position] == start:
            previous_object = starts_and_objects[size + position]
            starts_and_objects[size + position] = object_id
            return previous_object
        starts_and_objects.insert(size + position, object_id)
        starts_and_objects.insert(position, start)
        return None

    def remove(self, position: int) -> None:
        del self.starts_and_objects[self.size + position], self.starts_and_objects[position]

    def objects(self) -> array[int]:
        return self.starts_and_objects[self.size :]


class OffsetRangeIndex:
    """(stream, node) -> start offsets -> object id: lower bounds, learnt as objects are loaded.

    An incomplete index makes searches slow, never wrong. An item holds the entries of one stream on
    one node. It expires `ttl` seconds after it was created (``expire_after="use"``: after its last
    write or look-up); above `max_items` items or `max_entries` entries the oldest item is evicted
    as a whole. Written again, it is new, with an age of its own.

    There is no background thread. Each call evicts expired items of up to some 2000 entries, and
    never uses an expired one; the properties evict all expired items, O(entries). Memory: 16 bytes
    an entry and about 350 an item. Offsets and ids are any numbers that fit int64; `clock` gives
    seconds. Threads: safe, under one lock. Fork: create a new one in the child. Source of the
    rules: AutoMQ's prototype (pull request 2710) without its defects.

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
        """Make an empty index with these limits (see the class); raises `InvalidArgument` for
        invalid ones. A `ttl` of infinity lets no item expire."""
        self.ttl = ttl if ttl == math.inf else number(above=True)("ttl", ttl)
        self.expire_after = choice("write", "use")("expire_after", expire_after)
        self.max_items = integer(1)("max_items", max_items)
        self.max_entries = integer(1)("max_entries", max_entries)
        self._clock = function("clock", clock)
        self._renews_on_use = expire_after == "use"
        self._lock = Lock()
        # An item has all entries of one (stream, node). In the order of `age_start`, oldest first.
        self._items: OrderedDict[ItemKey, _OffsetItem] = OrderedDict()
        self._entries = 0  # of all items together
        # object -> (node, `age_start` of its oldest item), if all entries of the object are here
        self._complete_objects: dict[int, tuple[int, float]] = {}
        self._evictions: dict[EvictionReason, int] = {"age": 0, "items": 0, "entries": 0}

    # -- learning

    def put(self, stream: int, node: int, start: int, object_id: int) -> None:
        """Record that an object's slice of a stream begins at `start`; the last put wins. O(log n)
        of the item's n entries, plus moving the later ones."""
        _check_int64(stream, node, start, object_id)
        with self._lock:
            now = self._clock()
            self._put_entry((stream, node), start, object_id, now)
            self._make_room(now)

    def put_object(
        self, node: int, object_id: int, streams: Int64Array, starts: Int64Array
    ) -> None:
        """Record all streams of a loaded object. O(streams), about 1 us each; O(1) if the object
        was put before and all its entries are still here."""
        _check_int64(node, object_id)
        stream_numbers, offsets = np.asarray(streams), np.asarray(starts)
        if stream_numbers.shape != offsets.shape or stream_numbers.ndim != 1:
            raise InvalidArgument(f"{stream_numbers.shape} streams have {offsets.shape} starts")
        if stream_numbers.size and {stream_numbers.dtype, offsets.dtype} != {np.dtype(np.int64)}:
            raise InvalidArgument(f"must be int64, not {stream_numbers.dtype} and {offsets.dtype}")
        with self._lock:
            now = self._clock()
            self._evict_expired(now)
            # If the object was put before, and not even the oldest of its items has expired, all
            # its entries are still here. One that was not put counts as expired.
            known_node, known_age = self._complete_objects.get(object_id, (node, -math.inf))
            if not stream_numbers.size or (known_node == node and now - known_age < self.ttl):
                return
            oldest_age = now  # the lowest `age_start` of the items that have its entries
            for stream, start in zip(stream_numbers.tolist(), offsets.tolist()):
                age_start = self._put_entry((stream, node), start, object_id, now)
                oldest_age = min(oldest_age, age_start)
            self._complete_objects[object_id] = (node, oldest_age)
            self._make_room(now)

    def _put_entry(self, key: ItemKey, start: int, object_id: int, now: float) -> float:
        """Add one entry; return the `age_start` of its item, the time from which its age counts. If
        it replaces another object's entry, that object is no longer complete here."""
        item = self._use_item(key, now)
        if item is None:
            self._items[key] = _OffsetItem(now, start, object_id)
            self._entries += 1
            return now
        previous_object = item.put(start, object_id)
        if previous_object is None:
            self._entries += 1
        elif previous_object != object_id:
            self._complete_objects.pop(previous_object, None)
        return item.age_start

    # -- look-ups

    def floor(self, stream: int, node: int, offset: int) -> tuple[int, int] | None:
        """Return (start, object id) of the greatest start <= offset, or None; the object holds the
        stream from there on. If it was compacted away, `remove` the entry and retry. O(log n)."""
        with self._lock:
            now = self._clock()
            self._evict_expired(now)
            item = self._use_item((stream, node), now)
            return None if item is None else item.floor(offset)

    # -- removal

    def remove(self, stream: int, node: int, start: int, object_id: int) -> bool:
        """Remove an entry if it still names this object, which is gone; return whether it did."""
        key = (stream, node)
        with self._lock:
            item = self._use_item(key, self._clock())
            if item is None or (position := item.find_position(start, object_id)) < 0:
                return False
            item.remove(position)
            self._entries -= 1
            self._complete_objects.pop(object_id, None)  # not all of its entries are here now
            if not item.size:
                del self._items[key]
            return True

    def forget_objects(self, object_ids: Iterable[int]) -> None:
        """Let `put_object` record these objects anew; their entries stay until they go."""
        with self._lock:
            for object_id in object_ids:
                self._complete_objects.pop(object_id, None)

    def clear(self) -> None:
        """Remove everything but the counters."""
        with self._lock:
            self._items.clear()
            self._complete_objects.clear()
            self._entries = 0

    # -- eviction; the caller holds the lock

    def _use_item(self, key: ItemKey, now: float) -> _OffsetItem | None:
        """Return the item of a (stream, node), None if there is none. An item older than `ttl` is
        evicted instead. With ``expire_after="use"``, its age begins anew."""
        item = self._items.get(key)
        if item is None:
            return None
        if now - item.age_start >= self.ttl:
            self._evict_item(key, "age")
            return None
        if self._renews_on_use:
            item.age_start = now
            self._items.move_to_end(key)
        return item

    def _evict_expired(self, now: float, max_entries: int = _MAX_SWEPT_ENTRIES) -> None:
        """Evict expired items, oldest first, until `max_entries` entries are gone."""
        while max_entries > 0 and self._items:
            key = next(iter(self._items))
            if now - self._items[key].age_start < self.ttl:
                return
            max_entries -= self._evict_item(key, "age")

    def _make_room(self, now: float) -> None:
        """Evict expired items, then the oldest ones while there are more than `max_items` items (of
        a stream on a node each) or more than `max_entries` entries in them. The reason of each
        eviction is counted."""
        self._evict_expired(now)
        while len(self._items) > self.max_items or self._entries > self.max_entries:
            oldest_key = next(iter(self._items))
            reason: EvictionReason = "items" if len(self._items) > self.max_items else "entries"
            if now - self._items[oldest_key].age_start >= self.ttl:
                reason = "age"  # `_evict_expired` evicts only a few at a time
            self._evict_item(oldest_key, reason)

    def _evict_item(self, key: ItemKey, reason: EvictionReason) -> int:
        """Remove an item, count the eviction by its reason, and return how many entries the item
        had. Objects with an entry in it are no longer complete here."""
        item = self._items.pop(key)
        self._entries -= item.size
        self._evictions[reason] += 1
        for object_id in item.objects():
            self._complete_objects.pop(object_id, None)
        return item.size

    # -- sizes and counters

    @property
    def items(self) -> int:
        """How many (stream, node) pairs have unexpired entries."""
        return self._live_counts()[0]

    @property
    def entries(self) -> int:
        """How many start offsets are held and have not expired."""
        return self._live_counts()[1]

    @property
    def nbytes(self) -> int:
        """Estimated bytes of all items and entries."""
        items, entries = self._live_counts()
        return items * _ITEM_BYTES + entries * 16

    @property
    def evictions(self) -> dict[EvictionReason, int]:
        """Items evicted so far, by reason: "age", "items" (too many), "entries" (too many)."""
        with self._lock:
            self._evict_expired(self._clock(), self._entries)
            return dict(self._evictions)

    def _live_counts(self) -> tuple[int, int]:
        """Return how many items and entries there are, after evicting all expired ones."""
        with self._lock:
            self._evict_expired(self._clock(), self._entries)
            return len(self._items), self._entries

    def __repr__(self) -> str:
        items, entries = self._live_counts()
        return f"<OffsetRangeIndex: {entries} entries of {items} streams on their nodes>"


def _check_int64(*values: int) -> None:
    """Raise `InvalidArgument` unless each value is an integer that fits int64."""
    for value in values:
        try:
            fits = -(2**63) <= operator.index(value) < 2**63 and not isinstance(value, bool)
        except TypeError:
            fits = False
        if not fits:
            raise InvalidArgument(f"{describe_value(value)} is not an integer that fits int64")
