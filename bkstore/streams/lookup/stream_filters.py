"""ObjectFilters: could this object hold stream S? One hash of S for all filters of a look-up."""

from __future__ import annotations

from bkstore.bloom import FilterSet, hash_key


class StreamProbe:
    """One stream, hashed once, asked of the filters of many objects."""

    def __init__(self, filters: FilterSet, stream: int) -> None:
        self._filters = filters
        self._hashed = hash_key(stream)

    def refuses(self, object_id: int) -> bool | None:
        """Return True if the object certainly lacks the stream, None if it has no filter."""
        return self._filters.refuses(object_id, self._hashed)


class ObjectFilters(FilterSet):
    """A static bloom filter for each object of any node that was loaded, up to `max_bytes`.

    5,000 filters of 9,000 streams take 53.9 million bytes. The least recently asked go first.
    Threads: safe.
    """

    def probe(self, stream: int) -> StreamProbe:
        """Return a stream's question to the filters."""
        return StreamProbe(self, stream)
