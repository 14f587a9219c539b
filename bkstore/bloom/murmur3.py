"""MurmurHash3 x64 128, seed 0, of 8-byte little-endian keys: one key, or arrays. This is the hash
of Guava's long funnel (`Hashing.murmur3_128().hashLong`). A key of 8 bytes is all tail, which
leaves one multiply-rotate-multiply and the finalizer. Steps and constants: `docs/formats/bloom.md`;
source: `MurmurHash3_x64_128` (public domain)."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator

import mmh3
import numpy as np
import numpy.typing as npt

from bkstore.arguments import describe_value
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, IntArrayLike, as_int64

UInt64Array = npt.NDArray[np.uint64]

BLOCK_KEYS = 16_384
"""Keys in a block, whose few columns fit the processor's cache."""

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_31, _33, _LENGTH = np.uint64(31), np.uint64(33), np.uint64(8)


def hash_key(key: int) -> tuple[int, int]:
    """Return (h1, h2), unsigned 64-bit, of one key in -2^63 .. 2^63-1. About half a microsecond.
    Raises `InvalidArgument` for anything else, including bools and floats.

    >>> [hex(half) for half in hash_key(420000)]
    ['0xe632a086ab5db7a5', '0x9489406baa0d3f21']
    """
    if type(key) is not int:
        key = _as_int(key)
    try:
        data = key.to_bytes(8, "little", signed=True)
    except OverflowError:
        raise InvalidArgument(f"key {key} is outside -2^63..2^63-1") from None
    return mmh3.mmh3_x64_128_utupledigest(data)


def _as_int(key: int) -> int:
    """Return a key as an int; raises `InvalidArgument` if it is none."""
    if not isinstance(key, bool):
        with contextlib.suppress(TypeError):
            return operator.index(key)
    raise InvalidArgument(f"key {describe_value(key)} is not an integer")


def hash_keys(keys: IntArrayLike) -> tuple[UInt64Array, UInt64Array]:
    """Return (h1, h2), uint64[n] each, of n keys, equal to those of `hash_key`. O(n). Raises
    `InvalidArgument` for keys that are not integers in -2^63 .. 2^63-1.

    >>> h1, h2 = hash_keys([7, 420000])
    >>> (int(h1[1]), int(h2[1])) == hash_key(420000)
    True
    """
    ids = as_int64(keys, "keys")
    h1, h2 = np.empty((2, ids.size), np.uint64)
    for rows, columns in hash_blocks(ids):
        h1[rows], h2[rows] = columns[:2]
    return h1, h2


def hash_blocks(keys: Int64Array) -> Iterator[tuple[slice, UInt64Array]]:
    """Yield (slice of the keys, columns) block by block; columns are uint64[4, n] with n up to
    `BLOCK_KEYS`. Rows 0 and 1 are the hashes h1 and h2 of the keys; rows 2 and 3 are scratch for
    the caller, who may overwrite all four. They are reused for the next block."""
    words = keys.view(np.uint64)
    columns = np.empty((4, min(words.size, BLOCK_KEYS)), np.uint64)
    for start in range(0, words.size, BLOCK_KEYS):
        part = slice(start, min(start + BLOCK_KEYS, words.size))
        block = columns[:, : part.stop - start]
        _hash_into(words[part], *block[:3])
        yield part, block


def _hash_into(words: UInt64Array, h1: UInt64Array, h2: UInt64Array, spare: UInt64Array) -> None:
    """Compute MurmurHash3 (x64, 128 bits, seed 0) of keys of 8 bytes, given as `words`: its halves
    are written into `h1` and `h2`; `spare` is scratch."""
    # A key is a single word: multiply, rotate left by 31 bits, multiply.
    np.multiply(words, _C1, out=h1)
    np.right_shift(h1, _33, out=spare)
    np.left_shift(h1, _31, out=h1)
    np.bitwise_or(h1, spare, out=h1)
    np.multiply(h1, _C2, out=h1)
    # Both halves begin as the seed 0, and are mixed with the length of the key. A key of 8 bytes
    # has no second word for h2.
    np.bitwise_xor(h1, _LENGTH, out=h1)
    np.add(h1, _LENGTH, out=h1)
    np.add(h1, _LENGTH, out=h2)
    # The finalizer.
    _mix_bits(h1, spare)
    _mix_bits(h2, spare)
    np.add(h1, h2, out=h1)
    np.add(h2, h1, out=h2)


def _mix_bits(half: UInt64Array, spare: UInt64Array) -> None:
    """Mix every bit into all bits of the half, in place: fmix64 of the hash."""
    for factor in (_F1, _F2, None):  # the last of the three steps does not multiply
        np.right_shift(half, _33, out=spare)
        np.bitwise_xor(half, spare, out=half)
        if factor is not None:
            np.multiply(half, factor, out=half)
