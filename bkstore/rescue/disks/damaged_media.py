"""Reading from a medium that fails: unreadable sectors become zeros, and are listed."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from bkstore.errors import CorruptionError
from bkstore.files.os_errors import is_medium_error
from bkstore.ids import Int64Array
from bkstore.storage.entry_log.resynchronization import LogBytes

_SECTOR_BYTES = 4096


class PatchedLogBytes(LogBytes):
    """A log, or journal, of which sectors may be unreadable: they are returned as zeros.

    `bad_ranges` are the (offset, end) of what could not be read, ascending and disjoint. A failed
    read is repeated in halves, down to 4 KiB, so that only the sectors themselves are lost. Raises
    as `LogBytes` for any other error.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._bad_sectors: set[int] = set()

    @property
    def bad_ranges(self) -> list[tuple[int, int]]:
        """The (offset, end) of unreadable bytes, ascending."""
        ranges: list[tuple[int, int]] = []
        for sector in sorted(self._bad_sectors):
            start, end = sector * _SECTOR_BYTES, min((sector + 1) * _SECTOR_BYTES, self.size)
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        return ranges

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at an offset, zeros for those that the medium does not return."""
        read_size = max(min(count, self.size - offset), 0)
        try:
            return super().read(offset, read_size)
        except CorruptionError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or not is_medium_error(cause):
                raise
        # Read the halves on their own, split at a sector; one sector that fails becomes zeros.
        first, last = offset // _SECTOR_BYTES, (offset + read_size - 1) // _SECTOR_BYTES
        if first == last:
            self._bad_sectors.add(first)
            return bytes(read_size)
        middle = (first + last + 1) // 2 * _SECTOR_BYTES
        head = self.read(offset, middle - offset)
        return head + self.read(middle, offset + read_size - middle)

    def overlaps_bad(self, starts: Int64Array, ends: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which of the ranges start..end (half open) have a byte that could not be read."""
        ranges = np.array(self.bad_ranges, np.int64).reshape(-1, 2)
        if not ranges.size:
            return np.zeros(starts.size, np.bool_)
        # Only the first bad range that ends after a range's start can be the first to overlap it.
        candidate = np.searchsorted(ranges[:, 1], starts, "right")
        has_candidate = candidate < len(ranges)
        bad_start = ranges[np.minimum(candidate, len(ranges) - 1), 0]
        overlaps: npt.NDArray[np.bool_] = has_candidate & (bad_start < ends)
        return overlaps
