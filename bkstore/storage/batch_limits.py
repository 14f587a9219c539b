"""The size rules of a batch read (BP-62): how many records one response has.

The first record is always returned; the next ones, of consecutive ids, as long as the frame of the
response on the wire, 36 bytes and 4 more than each record's size, stays within `max_size`. A
response may have fewer records than requested. Source: `proto/BatchedReadEntryProcessor`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bkstore.arguments import bytes_like, check_compat, integer
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

DEFAULT_MAX_SIZE = 5 << 20
"""`maxBatchReadSize`, and the frame limit of the protocol."""

FRAME_OVERHEAD = 36  # 24 of header fields, 8 of request id, 4 of frame length
RECORD_OVERHEAD = 4
_UNLIMITED = 2**31 - 1
_MIN_RECORD_SIZE = 32  # ledger id, entry id, LAC and ledger length, of 8 bytes each
_check_number = integer(0)


def check_limits(max_count: int, max_size: int) -> tuple[int, int]:
    """Return the limits (0: none); raise `InvalidArgument` unless they are whole numbers."""
    return _check_number("max_count", max_count), _check_number("max_size", max_size)


def check_fencing_key(fence: bool, master_key: bytes | None) -> bytes | None:
    """Return the master key for a read that is to `fence` the ledger, None for any other read.
    Raises `InvalidArgument` if a fencing read has no key."""
    key = None if master_key is None else bytes_like("master key", master_key)
    if fence and key is None:
        raise InvalidArgument("a fencing read needs the master key")
    return key if fence else None


def max_records(max_count: int, max_size: int) -> int:
    """Return the largest possible number of records in a batch, before their sizes are known; at
    least 1. `max_count` <= 0 means no limit."""
    by_size = max(max_size - FRAME_OVERHEAD, 0) // (RECORD_OVERHEAD + _MIN_RECORD_SIZE)
    return max(1, min(max_count if max_count > 0 else _UNLIMITED, by_size))


def count_fitting(
    sizes: Int64Array, max_count: int, max_size: int, compat: Literal["bookkeeper"] | None = None
) -> int:
    """Return how many records of these `sizes` fit in a batch; at least 1, 0 if there are no sizes.

    `max_count` <= 0 means no limit; `max_size` <= 0 means the first record only. With
    ``compat="bookkeeper"`` the first record's size limits the count, as in BookKeeper since
    4.18: after a large first record, fewer are returned than would fit.

    >>> count_fitting(np.array([500, 100, 100, 100]), 0, 36 + 504 + 208), count_fitting(
    ...     np.array([500, 100, 100, 100]), 0, 36 + 504 + 208, compat="bookkeeper")
    (3, 1)
    """
    if compat is not None:
        check_compat("compat", compat)
    if not sizes.size:
        return 0
    count = min(int(sizes.size), max_count if max_count > 0 else _UNLIMITED)
    total_size = FRAME_OVERHEAD + int(sizes.sum()) + RECORD_OVERHEAD * int(sizes.size)
    if compat is None and total_size <= max_size:  # the usual case: all fit
        return count
    # The size of the response after each record; as many fit as are within the limit.
    frame_sizes = FRAME_OVERHEAD + np.cumsum(sizes[:count] + RECORD_OVERHEAD)
    if compat is not None:
        # BookKeeper expects every further record to be as large as the first.
        size_left = max(0, max_size - int(frame_sizes[0]))
        count = min(count, 1 + size_left // (RECORD_OVERHEAD + int(sizes[0])))
    return max(1, int(np.searchsorted(frame_sizes[:count], max_size, "right")))
