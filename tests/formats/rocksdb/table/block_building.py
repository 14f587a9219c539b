"""Blocks built by the rules of RocksDB's `block_builder.cc`, one entry at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    """Return a base-128 integer, low bits first."""
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def internal_key(key: bytes, sequence: int, code: int = 1) -> bytes:
    """Return a key with the trailer of a row."""
    return key + struct.pack("<Q", sequence << 8 | code)


def block(
    entries: Iterable[tuple[bytes, bytes]], restart_interval: int = 16, buckets: int | None = None
) -> bytes:
    """Return a block's contents; with `buckets`, as one that has a hash index of so many."""
    contents, restarts, before = b"", [0], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart_interval:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        elif number:
            restarts.append(len(contents))
        contents += varint(shared) + varint(len(key) - shared) + varint(len(value))
        contents += key[shared:] + value
        before = key
    packed = len(restarts)
    contents += struct.pack(f"<{len(restarts)}I", *restarts)
    if buckets is not None:
        contents += bytes([255]) * buckets + struct.pack("<H", buckets)
        packed |= 1 << 31
    return contents + struct.pack("<I", packed)
