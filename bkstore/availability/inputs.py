"""Checks of callers' rows, ranges and bounds, which return columns or raise `InvalidArgument`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import INT32_MAX, Groups, empty
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, check_entry_id, check_integer


def check_rows(value: Any, width: int, description: str) -> Int64Array:
    """Return rows of `width` integers that fit int64; `description` describes them in errors."""
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{description}, not {type(value).__name__}")
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(list(value))
    except (TypeError, ValueError, OverflowError):  # ragged, or a zero-dimensional array
        raise InvalidArgument(f"{description}, all of one length") from None
    if array.size == 0 and array.ndim > 0:
        return np.empty((0, width), np.int64)
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidArgument(f"{description}, not of shape {array.shape}")
    too_big = array.dtype == np.uint64 and int(array.max()) > 2**63 - 1
    if array.dtype.kind not in "iu" or too_big:
        raise InvalidArgument(f"{description} of integers that fit int64, not {array.dtype}")
    return array.astype(np.int64)


def check_groups(value: Any) -> Groups:
    """Return (first, last, size, period) rows as columns; checks only that they can be encoded."""
    columns = Groups(*check_rows(value, 4, "groups are (first, last, size, period) rows").T)
    has_many = columns.last != columns.first
    too_low = np.minimum(columns.size, columns.period) < -INT32_MAX
    if (too_low | (has_many & (columns.size > INT32_MAX)) | (columns.period > INT32_MAX)).any():
        raise InvalidArgument("sequence size or period does not fit i32")
    return columns


def groups_of_range(ids: range) -> Groups:
    """Return the ids of a range as canonical groups. O(1). Raises `InvalidArgument` for more than
    2^24 ids with a step above int32."""
    if not ids:
        return empty()
    low, high = sorted((check_entry_id(ids[0]), check_entry_id(ids[-1])))
    step = abs(ids.step)
    row = (low, low, high - low + 1, 0) if step == 1 or low == high else (low, high, 1, step)
    return canonicalize(Groups(*np.array([row], np.int64).T))


def check_bound(value: Any, description: str) -> int | None:
    """Return the bound of a range of entry ids, which may be any int; None is returned as is."""
    return None if value is None else check_integer(value, description)
