"""ObjectRanges: the slices that a stream set object holds, one per stream, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array


@dataclass(frozen=True, eq=False)
class ObjectRanges:
    """The streams of one object and the offset range of each: int64[n] arrays, streams ascending.

    Ranges are half open and not empty. An object takes 24 bytes per stream: 211 KiB for 9,000.

    >>> held = ObjectRanges.of([(7, 40, 60), (3, 0, 10)])
    >>> held.slice_of(7), held.slice_of(4)
    ((40, 60), None)
    """

    streams: Int64Array
    starts: Int64Array
    ends: Int64Array

    @classmethod
    def of(cls, ranges: Iterable[Iterable[int]]) -> ObjectRanges:
        """Return the ranges of (stream, start, end) triples; empty triples are dropped.

        Triples of one stream become one, from the first start to the last end, as the real system
        folds its index blocks. Raises `InvalidArgument` for negative numbers, start > end, or
        overlaps.
        """
        rows = _checked_rows(list(ranges))
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]  # by stream, then start
        streams, starts, ends = rows[:, 0], rows[:, 1], rows[:, 2]
        same_stream = streams[1:] == streams[:-1]
        overlaps = np.flatnonzero(same_stream & (starts[1:] < ends[:-1]))
        if overlaps.size:
            index = int(overlaps[0])
            raise InvalidArgument(
                f"stream {streams[index]}: slices {_format_slice(rows[index])} and "
                f"{_format_slice(rows[index + 1])} overlap"
            )
        # The first and last row of each stream. Without rows, `True` alone is one item too many, so
        # both are cut to the number of rows.
        first_rows = np.flatnonzero(np.concatenate(([True], ~same_stream)))[: len(rows)]
        last_rows = np.append(first_rows[1:], len(rows))[: len(first_rows)] - 1
        return cls(streams[first_rows].copy(), starts[first_rows].copy(), ends[last_rows].copy())

    def __len__(self) -> int:
        return int(self.streams.size)

    @property
    def _columns(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        return self.streams, self.starts, self.ends

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectRanges):
            return False
        return all(map(np.array_equal, self._columns, other._columns))

    def slice_of(self, stream: int) -> tuple[int, int] | None:
        """Return (start, end) of a stream's slice, None if it has none. O(log n), 1 us."""
        index = int(self.streams.searchsorted(stream))
        if index == self.streams.size or self.streams.item(index) != stream:
            return None
        return self.starts.item(index), self.ends.item(index)

    def rows(self) -> list[list[int]]:
        """Return [stream, start, end] rows for the JSON form."""
        row_list: list[list[int]] = np.stack(self._columns, axis=1).tolist()
        return row_list


def _format_slice(row: Any) -> str:
    """Return the offsets of a (stream, start, end) row as text."""
    _, start, end = row
    return f"[{start}, {end})"


def _checked_rows(ranges: list[Iterable[int]]) -> Int64Array:
    """Return int64[n, 3] of the ranges that are not empty. Raises `InvalidArgument`."""
    if not ranges:
        return np.empty((0, 3), np.int64)
    try:
        rows: Int64Array = np.array(ranges)
    except (ValueError, TypeError, OverflowError):  # of different lengths
        rows = np.empty(0)  # type: ignore[assignment]  # which the next check refuses
    if rows.dtype != np.int64 or rows.shape != (len(ranges), 3):
        raise InvalidArgument("ranges must be [stream, start, end] of 64-bit numbers each")
    invalid_rows = np.flatnonzero((rows < 0).any(axis=1) | (rows[:, 1] > rows[:, 2]))
    if invalid_rows.size:
        stream, start, end = row = rows[invalid_rows[0]].tolist()
        problem = "a negative number" if min(row) < 0 else "its start after its end"
        raise InvalidArgument(f"range [{stream}, {start}, {end}] has {problem}")
    return rows[rows[:, 1] < rows[:, 2]]
