"""Bits set and tested for arrays of hashes: the loops of `BloomFilter` over blocks of keys.

The bit array is uint8, bit i in bit ``i mod 8`` of byte ``i div 8``. Every function here uses up
the hashes it is given. A position is ``(h1 + i * h2) mod 2^63 mod size``; numpy's remainder by a
constant takes 7 times as long as its quotient, so it is made from that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.bloom.murmur3 import UInt64Array, hash_blocks
from bkstore.ids import Int64Array

__all__ = ["BitArray", "add_keys", "contains_keys", "count_ones"]

BitArray = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

MOST_FLAGS = 1 << 24
"""Bytes of scratch, a byte for a bit, that setting bits may take; larger filters go without."""

_LOW_63 = np.uint64(2**63 - 1)
_BIT_OF = (1 << np.arange(8)).astype(np.uint8)


def _next_positions(
    h1: UInt64Array, h2: UInt64Array, size: np.uint64, out: UInt64Array
) -> Int64Array:
    """Return the positions of this round in `out`, and move `h1` on to the next round."""
    np.bitwise_and(h1, _LOW_63, out=h1)
    np.floor_divide(h1, size, out=out)
    np.multiply(out, size, out=out)
    np.subtract(h1, out, out=out)
    np.add(h1, h2, out=h1)
    return out.view(np.int64)


def add_keys(bits: BitArray, hash_count: int, keys: Int64Array) -> None:
    """Set the bits of all keys. O(n); scratch is a few blocks and at most `MOST_FLAGS` bytes."""
    size = np.uint64(bits.size * 8)
    # A byte a bit is written three times faster than a bit, and costs a pass over all of them.
    if size > MOST_FLAGS or size > 16 * hash_count * keys.size:
        for _, h1, h2, spare in hash_blocks(keys):
            for _ in range(hash_count):
                _set_bits(bits, _next_positions(h1, h2, size, spare))
        return
    flags = np.zeros(int(size), np.uint8)
    for _, h1, h2, spare in hash_blocks(keys):
        for _ in range(hash_count):
            flags[_next_positions(h1, h2, size, spare)] = 1
    np.bitwise_or(bits, np.packbits(flags, bitorder="little"), out=bits)


def _set_bits(bits: BitArray, positions: Int64Array) -> None:
    """Set bits where they are. Of several writes to one byte the last wins; the losers see
    that their bit is missing and write again, so that it takes at most eight turns.
    """
    at, bit = positions >> 3, _BIT_OF[positions & 7]
    while at.size:
        bits[at] = bits.take(at) | bit
        lost = np.flatnonzero((bits.take(at) & bit) == 0)
        at, bit = at[lost], bit[lost]


def contains_keys(bits: BitArray, hash_count: int, keys: Int64Array) -> Flags:
    """Return bool[n]: are all bits of the key set? O(n), half of it for absent keys."""
    found = np.empty(keys.size, np.bool_)
    for part, h1, h2, spare in hash_blocks(keys):
        found[part] = _all_set(bits, hash_count, h1, h2, spare)
    return found


def _all_set(
    bits: BitArray, hash_count: int, h1: UInt64Array, h2: UInt64Array, spare: UInt64Array
) -> Flags:
    size, total = np.uint64(bits.size * 8), h1.size
    byte, shift, held = np.empty((3, total), np.uint8)
    held.fill(1)
    left = None
    for _ in range(hash_count):
        positions = _next_positions(h1, h2, size, spare[: h1.size])
        np.bitwise_and(positions, 7, out=shift, casting="unsafe")
        np.right_shift(positions, 3, out=positions)
        # "clip" writes straight into `out`, where "raise" goes through a copy.
        bits.take(positions, out=byte, mode="clip")
        np.right_shift(byte, shift, out=byte)
        np.bitwise_and(held, byte, out=held)
        if np.count_nonzero(held.view(np.bool_)) <= held.size // 2:  # go on with those still in
            still = np.flatnonzero(held)
            left = still if left is None else left[still]
            h1, h2 = h1[still], h2[still]
            byte, shift, held = byte[: still.size], shift[: still.size], held[still]
    if left is None:
        return held.view(np.bool_)
    found = np.zeros(total, np.bool_)
    found[left] = held.view(np.bool_)
    return found


def count_ones(bits: BitArray) -> int:
    """Return the number of bits set. O(bytes), with scratch of a constant size."""
    words, step = bits.view(np.uint64), 1 << 20
    parts = (words[at : at + step] for at in range(0, words.size, step))
    return sum(int(np.bitwise_count(part).sum(dtype=np.int64)) for part in parts)
