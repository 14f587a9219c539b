"""Digests of many records at once: the headers by array operations, the payloads one call each.

A CRC is affine: in messages of one length, a byte at a place changes the sum by the same bits
whatever stands beside it. So the sums of all headers are a few table look-ups for each byte that
is not the same in all of them, and the checksum library is called for payloads alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry.digest import Digest

Bytes2D = npt.NDArray[np.uint8]
"""Rows of equally many bytes: uint8[n, width]."""

_Extend = Callable[[int, bytes], int]
"""(sum so far, bytes) -> the sum with them."""


def digests_of(digest: Digest, headers: Bytes2D, payloads: Sequence[bytes]) -> Bytes2D:
    """Return the stored digests of records, uint8[n, digest.size].

    A call of the checksum library a record, and about 50 ns; an HMAC costs what it costs.
    """
    count = len(payloads)
    if digest.name == "DUMMY" or not count:
        return np.empty((count, digest.size), np.uint8)
    if digest.name == "HMAC":
        rows = headers.tobytes()
        width = headers.shape[1]
        starts = range(0, count * width, width)
        found = [digest.of(rows[at : at + width], body) for at, body in zip(starts, payloads)]
        return np.frombuffer(b"".join(found), np.uint8).reshape(count, digest.size)
    extend = _extend(digest.name)
    begun = _header_sums(digest.name, headers)
    sums = np.fromiter(map(extend, begun.tolist(), payloads), np.uint32, count)
    stored = np.zeros((count, digest.size), np.uint8)  # CRC32 is stored as 8 bytes
    stored[:, -4:] = sums.astype(">u4").view(np.uint8).reshape(count, 4)
    return stored


def _extend(name: str) -> _Extend:
    if name == "CRC32C":
        from google_crc32c import extend  # `import bkstore` loads nothing but numpy

        crc32c: _Extend = extend
        return crc32c
    return lambda start, data: zlib.crc32(data, start)


@cache
def _tables(name: str, width: int) -> tuple[int, npt.NDArray[np.uint32]]:
    """Return the sum of `width` zeros, and what each byte at each place changes in it.

    uint32[width, 256]. Some ten thousand sums, once for each digest type and version.
    """
    extend = _extend(name)
    zero = extend(0, bytes(width))
    tables = np.empty((width, 256), np.uint32)
    for place in range(width):
        message = bytearray(width)
        for value in range(256):
            message[place] = value
            tables[place, value] = extend(0, bytes(message)) ^ zero
    return zero, tables


def _header_sums(name: str, headers: Bytes2D) -> npt.NDArray[np.uint32]:
    """Return the CRC of each header, uint32[n]."""
    zero, tables = _tables(name, headers.shape[1])
    sums = np.full(len(headers), zero, np.uint32)
    low, high = headers.min(axis=0), headers.max(axis=0)
    for place in np.flatnonzero(high).tolist():
        if low[place] == high[place]:
            sums ^= tables[place, low[place]]
        else:
            sums ^= tables[place][headers[:, place]]
    return sums
