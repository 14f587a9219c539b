"""Roaring bitmaps of pyroaring, built in the fastest way, for comparisons with them."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from bkstore.ids import Int64Array


def build_bitmap(module: Any, ids: Int64Array) -> Any:
    """Return the bitmap of ids below 2^32, built by pyroaring's fast path. Only an `array` of
    unsigned ints takes it: numpy arrays and lists are iterated, which is up to nine times as
    slow."""
    return module.BitMap(array("I", ids.astype(np.uint32).tobytes()))


def serialize_bitmap(bitmap: Any) -> bytes:
    """Return the serialized bitmap, run-length encoded where that is shorter."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())
