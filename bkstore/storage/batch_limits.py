"""The contract of a batch read (BP-62): how many records one answer takes.

A batch begins at a given entry and goes on through consecutive ids. The first record always
comes; a further one comes as long as the frame that would carry the answer over the wire, 36
bytes and 4 more than each record's size, stays within `max_size`. It is a loose contract: fewer
records than asked for are a good answer. Source: `proto/BatchedReadEntryProcessor`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bkstore.arguments import check_compat, data, whole
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

DEFAULT_MAX_SIZE = 5 << 20
"""`maxBatchReadSize`, and the frame limit of the protocol."""

FRAME_OVERHEAD = 36  # 24 of header fields, 8 of request id, 4 of frame length
RECORD_OVERHEAD = 4
_UNLIMITED = 2**31 - 1
_SMALLEST_RECORD = 32


_check_number = whole(0)


def check_limits(max_count: int, max_size: int) -> tuple[int, int]:
    """Return the limits of a batch, whole numbers, 0 for none; else `InvalidArgument`."""
    return _check_number("max_count", max_count), _check_number("max_size", max_size)


def fencing_key(fence: bool, master_key: bytes | None) -> bytes | None:
    """Return the key that a fencing read needs, None for a read that fences nothing."""
    key = None if master_key is None else data("master key", master_key)
    if fence and key is None:
        raise InvalidArgument("a fencing read needs the master key")
    return key if fence else None


def most_records(max_count: int, max_size: int) -> int:
    """Return a bound on the records of a batch, whatever their sizes; at least 1."""
    by_size = max(max_size - FRAME_OVERHEAD, 0) // (RECORD_OVERHEAD + _SMALLEST_RECORD)
    return max(1, min(max_count if max_count > 0 else _UNLIMITED, by_size))


def how_many(
    sizes: Int64Array,
    max_count: int,
    max_size: int,
    compat: Literal["bookkeeper"] | None = None,
) -> int:
    """Return how many of the records of `sizes` bytes one batch takes; 1 at least, 0 of none.

    `max_count` <= 0 means no limit; `max_size` <= 0 means the first record only. With
    ``compat="bookkeeper"`` the first record's size caps the count, as built since 4.18: after
    a large first record fewer come than would fit.

    >>> how_many(np.array([500, 100, 100, 100]), 0, 36 + 504 + 208), how_many(
    ...     np.array([500, 100, 100, 100]), 0, 36 + 504 + 208, compat="bookkeeper")
    (3, 1)
    """
    if compat is not None:
        check_compat("compat", compat)
    if not sizes.size:
        return 0
    count = min(int(sizes.size), max_count if max_count > 0 else _UNLIMITED)
    whole = FRAME_OVERHEAD + int(sizes.sum()) + RECORD_OVERHEAD * int(sizes.size)
    if compat is None and whole <= max_size:
        return count
    frames = FRAME_OVERHEAD + np.cumsum(sizes[:count] + RECORD_OVERHEAD)
    if compat is not None:
        left = max(0, max_size - int(frames[0]))
        count = min(count, 1 + left // (RECORD_OVERHEAD + int(sizes[0])))
    return max(1, int(np.searchsorted(frames[:count], max_size, "right")))
