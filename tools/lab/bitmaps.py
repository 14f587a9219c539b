"""Roaring bitmaps of pyroaring, as fast as they can be had: for all that is compared with them."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from bkstore.ids import Int64Array


def bitmap_of(module: Any, ids: Int64Array) -> Any:
    """Return the bitmap of ids below 2^32, made by pyroaring's fast way in.

    Only an `array` of unsigned ints is read as a whole: numpy arrays and lists are walked id by id,
    which takes up to nine times as long.
    """
    return module.BitMap(array("I", ids.astype(np.uint32).tobytes()))


def encoded(bitmap: Any) -> bytes:
    """Return the bytes of a bitmap, in runs where these are shorter."""
    bitmap.run_optimize()
    return bytes(bitmap.serialize())
