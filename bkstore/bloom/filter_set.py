"""FilterSet: one static filter for each object, with a limit in bytes. An object whose filter is
negative for an id certainly lacks that id and need not be loaded; all others have to be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from threading import Lock

from bkstore.arguments import integer
from bkstore.bloom.filter import BloomFilter, filter_size
from bkstore.ids import Int64Array

DEFAULT_MAX_BYTES = 64 << 20
"""Enough for 5000 objects of 9000 streams: 53.9 million bytes of bit arrays."""

_OVERHEAD_BYTES = 8  # counted per filter in addition to its bits, as in AutoMQ's prototype


class FilterSet:
    """One filter of ids for each key (an object), built once; evicts the least recently used.

    Each filter counts its bit array and 8 bytes towards `max_bytes`; a filter that exceeds the
    limit by itself is not stored. Drop the keys of deleted objects; a concurrent build may store
    one again, which only takes space until it is evicted.

    Threads: safe, under one lock, which is not held while a filter is built or queried. Fork:
    create it anew in the child. Rules: AutoMQ/automq#2731.

    >>> import numpy as np
    >>> from bkstore.bloom import hash_key
    >>> filters = FilterSet()
    >>> filters.build(14, np.array([420000, 7]))
    >>> filters.build(22, np.array([8]))
    >>> hashed = hash_key(420000)  # once for all filters of a look-up
    >>> [filters.excludes(key, hashed) for key in (14, 22, 32)]
    [False, True, None]
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES, fpp: float = 0.01) -> None:
        filter_size(1, fpp)  # refuses an fpp that makes no filter
        self.max_bytes = integer()("max_bytes", max_bytes)
        self.fpp = fpp
        self._lock = Lock()
        self._filters: OrderedDict[Hashable, BloomFilter] = OrderedDict()
        self._nbytes = 0  # of all bit arrays
        self._evictions = 0

    def build(self, key: Hashable, ids: Int64Array) -> None:
        """Build and store the filter of an object from its distinct ids, unless it has one. While
        the filters take too much memory, those not used for the longest time are evicted; a filter
        that is too large alone is not stored. An object without ids gets a filter that excludes
        every id. O(ids)."""
        if key in self:
            return
        bloom = BloomFilter.of(ids, self.fpp)
        with self._lock:
            # The filter was built without the lock, so another thread may have stored one.
            if key in self._filters or bloom.nbytes + _OVERHEAD_BYTES > self.max_bytes:
                return
            self._filters[key] = bloom
            self._nbytes += bloom.nbytes
            while self._nbytes + _OVERHEAD_BYTES * len(self._filters) > self.max_bytes:
                _, oldest = self._filters.popitem(last=False)
                self._nbytes -= oldest.nbytes
                self._evictions += 1

    def drop(self, keys: Iterable[Hashable]) -> int:
        """Remove the filters of these objects; return how many had one."""
        with self._lock:
            dropped = [bloom for key in keys if (bloom := self._filters.pop(key, None)) is not None]
            self._nbytes -= sum(bloom.nbytes for bloom in dropped)
            return len(dropped)

    def clear(self) -> None:
        """Remove all filters."""
        with self._lock:
            self._filters.clear()
            self._nbytes = 0

    def excludes(self, key: Hashable, key_hash: tuple[int, int]) -> bool | None:
        """Return True if the id whose `hash_key` is `key_hash` is certainly not in the object,
        False if it may be, None if the object has no filter. This counts as a use of the filter.
        O(k), about 2 us."""
        with self._lock:
            bloom = self._filters.get(key)
            if bloom is None:
                return None
            self._filters.move_to_end(key)
        return not bloom.contains_hash(*key_hash)

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

    @property
    def nbytes(self) -> int:
        """Bytes of the bit arrays."""
        with self._lock:
            return self._nbytes

    @property
    def evictions(self) -> int:
        """The number of filters evicted to stay within `max_bytes`, without dropped ones."""
        with self._lock:
            return self._evictions

    def __repr__(self) -> str:
        with self._lock:
            return f"<FilterSet: {len(self._filters)} filters, {self._nbytes} bytes>"
