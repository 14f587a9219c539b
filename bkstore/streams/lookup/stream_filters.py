"""ObjectFilters: bloom filters of objects; a lookup hashes its stream once for all of them."""

from __future__ import annotations

from bkstore.bloom import FilterSet, hash_key


class StreamProbe:
    """One stream, hashed once, for probing the filters of many objects."""

    def __init__(self, filters: FilterSet, stream: int) -> None:
        self._filters = filters
        self._hashed = hash_key(stream)

    def refuses(self, object_id: int) -> bool | None:
        """Return True if the object certainly lacks the stream, None if it has no filter."""
        return self._filters.excludes(object_id, self._hashed)


class ObjectFilters(FilterSet):
    """A static bloom filter for each loaded object of any node, up to `max_bytes`. Threads: safe.

    5,000 filters of 9,000 streams take 53.9 MB. The least recently used are evicted first.
    """

    def probe(self, stream: int) -> StreamProbe:
        """Return a probe of all filters for one stream."""
        return StreamProbe(self, stream)
