"""FilterSet: one static filter for each object, bounded by bytes.

Which objects need not be looked at? A filter's "no" is certain, so that the object is passed over
without loading it; where there is no filter, or it says "perhaps", the object has to be loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from threading import Lock

from bkstore.arguments import whole
from bkstore.bloom.filter import BloomFilter, filter_size
from bkstore.ids import Int64Array

DEFAULT_MAX_BYTES = 64 << 20
"""Room for 5000 objects of 9000 streams: 53.9 million bytes of bit arrays."""

_OVERHEAD = 8  # bytes that a filter counts beside its bits, as in AutoMQ's prototype


class FilterSet:
    """One filter of ids for each key (an object), built once, least recently used first out.

    Filters count 8 bytes and their bit array each towards `max_bytes`; one that is larger by
    itself is not kept. Objects that go should be dropped; one that comes back through a build
    that ran at the time costs room until it is the least recently used, and is never wrong.

    Threads: safe, under one lock, which is not held while a filter is built or asked. Fork: make
    it anew in the child. Rules: AutoMQ/automq#2731.

    >>> import numpy as np
    >>> from bkstore.bloom import hash_key
    >>> filters = FilterSet()
    >>> filters.build(14, np.array([420000, 7]))
    >>> filters.build(22, np.array([8]))
    >>> hashed = hash_key(420000)  # once, for all filters of a look-up
    >>> [filters.refuses(key, hashed) for key in (14, 22, 32)]
    [False, True, None]
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES, fpp: float = 0.01) -> None:
        filter_size(1, fpp)  # refuses an fpp that makes no filter
        self.max_bytes = whole()("max_bytes", max_bytes)
        self.fpp = fpp
        self._lock = Lock()
        self._filters: OrderedDict[Hashable, BloomFilter] = OrderedDict()
        self._nbytes = 0
        self._evictions = 0

    # -- building and dropping

    def build(self, key: Hashable, ids: Int64Array) -> None:
        """Make the filter of an object from its distinct ids. O(ids); O(1) if it is there.

        Filters are static: one that is there stays as it is. An object without ids counts as one
        insertion, and its filter refuses every id.
        """
        if key in self:
            return
        made = BloomFilter.of(ids, self.fpp)
        with self._lock:
            if key in self._filters or made.nbytes + _OVERHEAD > self.max_bytes:
                return
            self._filters[key] = made
            self._nbytes += made.nbytes
            while self._nbytes + _OVERHEAD * len(self._filters) > self.max_bytes:
                _, oldest = self._filters.popitem(last=False)
                self._nbytes -= oldest.nbytes
                self._evictions += 1

    def drop(self, keys: Iterable[Hashable]) -> int:
        """Remove the filters of objects that are gone; return how many there were."""
        with self._lock:
            gone = [found for key in keys if (found := self._filters.pop(key, None)) is not None]
            self._nbytes -= sum(one.nbytes for one in gone)
            return len(gone)

    def clear(self) -> None:
        """Remove all filters."""
        with self._lock:
            self._filters.clear()
            self._nbytes = 0

    # -- asking

    def refuses(self, key: Hashable, hashed: tuple[int, int]) -> bool | None:
        """Return True if the id of which `hash_key` gave `hashed` is certainly not in the object.

        False: perhaps it is. None: no filter is here. Counts as a use. O(k), about 2 us.
        """
        with self._lock:
            found = self._filters.get(key)
            if found is None:
                return None
            self._filters.move_to_end(key)
        return not found.contains_hash(*hashed)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._filters

    def __len__(self) -> int:
        with self._lock:
            return len(self._filters)

    def keys(self) -> list[Hashable]:
        """Return the keys that have a filter, the least recently used first."""
        with self._lock:
            return list(self._filters)

    # -- about it

    @property
    def nbytes(self) -> int:
        """Bytes of the bit arrays."""
        with self._lock:
            return self._nbytes

    @property
    def evictions(self) -> int:
        """Filters that had to leave for want of room; dropped ones are not among them."""
        with self._lock:
            return self._evictions

    def __repr__(self) -> str:
        with self._lock:
            return f"<FilterSet: {len(self._filters)} filters, {self._nbytes} bytes>"
