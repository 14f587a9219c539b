"""Digests of many records at once: the headers by array operations, the payloads one call each. A
CRC is affine: among messages of one length, a byte at a position flips the same bits of the sum
whatever the others are. So a header's sum is a table look-up and an XOR for each byte that differs
among the headers, and the checksum library is called for the payloads only."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry.digest import Digest

Bytes2D = npt.NDArray[np.uint8]
"""Rows of equal length: uint8[n, size]."""

_ExtendCrc = Callable[[int, bytes], int]
"""(CRC so far, further bytes) -> the CRC including them."""


def digests_of(digest: Digest, headers: Bytes2D, payloads: Sequence[bytes]) -> Bytes2D:
    """Return the stored digests of records, uint8[n, digest.size]. CRCs take one library call a
    record and about 50 ns more; HMACs are computed one by one."""
    count = len(payloads)
    if digest.name == "DUMMY" or not count:  # DUMMY has size 0
        return np.empty((count, digest.size), np.uint8)
    if digest.name == "HMAC":
        digests = b"".join(map(digest.compute, row_bytes(headers), payloads))
        return np.frombuffer(digests, np.uint8).reshape(count, digest.size)
    extend_crc = _crc_function(digest.name)
    header_sums = _header_sums(digest.name, headers)
    # The CRC of a record is that of its header, extended by the payload.
    sums = np.fromiter(map(extend_crc, header_sums.tolist(), payloads), np.uint32, count)
    stored = np.zeros((count, digest.size), np.uint8)  # CRC32 is stored as 8 bytes
    stored[:, -4:] = sums.astype(">u4").view(np.uint8).reshape(count, 4)
    return stored


def row_bytes(rows: Bytes2D) -> list[bytes]:
    """Return each row as bytes."""
    row_count, row_size = rows.shape
    if not row_size:
        return [b""] * row_count
    row_list: list[bytes] = np.ascontiguousarray(rows).view(f"V{row_size}").ravel().tolist()
    return row_list


def _crc_function(digest_name: str) -> _ExtendCrc:
    if digest_name == "CRC32C":
        from google_crc32c import extend  # `import bkstore` loads nothing but numpy

        crc32c: _ExtendCrc = extend
        return crc32c
    return lambda crc, data: zlib.crc32(data, crc)


@cache
def _byte_changes(digest_name: str, header_size: int) -> tuple[int, npt.NDArray[np.uint32]]:
    """Return the CRC of `header_size` zeros, and by which XOR each byte value at each position
    changes it: uint32[header_size, 256]. CRCs are linear, so these changes combine. Computing them
    takes ten thousand CRCs, once for each digest type and header version."""
    extend = _crc_function(digest_name)
    zero_sum = extend(0, bytes(header_size))
    changes = np.empty((header_size, 256), np.uint32)
    for position in range(header_size):
        message = bytearray(header_size)
        for value in range(256):
            message[position] = value
            changes[position, value] = extend(0, bytes(message)) ^ zero_sum
    return zero_sum, changes


def _header_sums(digest_name: str, headers: Bytes2D) -> npt.NDArray[np.uint32]:
    """Return the CRC of each header: that of zeros, changed by XOR for each byte that is not zero.
    `headers` is uint8[n, size]; each position takes a few array operations for all headers."""
    zero_sum, changes = _byte_changes(digest_name, headers.shape[1])
    sums = np.full(len(headers), zero_sum, np.uint32)
    lowest, highest = headers.min(axis=0), headers.max(axis=0)
    for position in np.flatnonzero(highest).tolist():
        if lowest[position] == highest[position]:  # the same in all headers
            sums ^= changes[position, lowest[position]]
        else:
            sums ^= changes[position][headers[:, position]]
    return sums
