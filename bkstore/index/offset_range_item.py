"""One stream on one node: ascending start offsets, and the object that each names.

`data` has n start offsets and then their n object ids: one array of 16 bytes an entry, where a
sorted map of Python numbers takes some 100.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right


class OffsetItem:
    """The entries of one stream on one node, one at least, each start distinct.

    `since` is when its life began. Not safe beside writers: the index has the lock.

    >>> item = OffsetItem(0.0, 686, 14)
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
