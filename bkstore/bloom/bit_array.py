"""Bits set and tested for arrays of keys: the loops of `BloomFilter` over blocks of hashes.

The bit array is uint8, bit i in bit ``i mod 8`` of byte ``i div 8``. The positions of a key are
``(h1 + i * h2) mod 2^63 mod size``. Here the hashes are doubled first, so that the mod 2^63 is
uint64's own overflow; shifting them back right by 1 gives positions, by 4 their bytes (size is
a multiple of 8). numpy's remainder takes 7 times as long as its quotient by a constant, so
remainders are made from quotients.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.bloom.murmur3 import BLOCK, UInt64Array, hash_blocks
from bkstore.ids import Int64Array

BitArray = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

MOST_FLAGS = 1 << 24
"""Bytes of scratch, a byte for a bit, that setting bits may take; larger filters go without."""

_TO_POSITION, _TO_BYTE = np.uint64(1), np.uint64(4)


def _low_bytes(columns: UInt64Array) -> npt.NDArray[np.uint8]:
    """Return the low bytes of h1 and h2: their sums give the bit within its byte."""
    return columns[:2].astype(np.uint8)


def _double(columns: UInt64Array) -> None:
    np.left_shift(columns[:2], 1, out=columns[:2])


def _next_places(columns: UInt64Array, shift: np.uint64, modulus: np.uint64) -> Int64Array:
    """Return this round's positions, or bytes, of doubled hashes in the third column, and move
    the first on to the next round. The fourth is scratch.
    """
    first, step, place, quotient = columns
    np.right_shift(first, shift, out=place)
    np.floor_divide(place, modulus, out=quotient)
    np.multiply(quotient, modulus, out=quotient)
    np.subtract(place, quotient, out=place)
    np.add(first, step, out=first)
    positions: Int64Array = place.view(np.int64)
    return positions


def add_keys(bits: BitArray, hash_count: int, keys: Int64Array) -> None:
    """Set the bits of all keys. O(n); scratch is a few blocks and at most `MOST_FLAGS` bytes."""
    # Writing a byte for a bit is faster than a bit, and costs a pass over all of them.
    if bits.size * 8 > min(MOST_FLAGS, 16 * hash_count * keys.size):
        for _, columns in hash_blocks(keys):
            _set_block(bits, hash_count, columns)
        return
    flags = np.zeros(bits.size * 8, np.uint8)
    ones = np.ones(min(keys.size, BLOCK), np.uint8)
    for _, columns in hash_blocks(keys):
        _double(columns)
        for _ in range(hash_count):
            positions = _next_places(columns, _TO_POSITION, np.uint64(flags.size))
            # Faster than an assignment where flags are not in the cache, slower nowhere.
            np.maximum.at(flags, positions, ones[: positions.size])
    np.bitwise_or(bits, np.packbits(flags, bitorder="little"), out=bits)


def _set_block(bits: BitArray, hash_count: int, columns: UInt64Array) -> None:
    modulus, low = np.uint64(bits.size), _low_bytes(columns)
    _double(columns)
    bit, byte = np.empty((2, low.shape[1]), np.uint8)
    for _ in range(hash_count):
        at = _next_places(columns, _TO_BYTE, modulus)
        np.bitwise_and(low[0], 7, out=bit)
        np.left_shift(1, bit, out=bit)
        np.add(low[0], low[1], out=low[0])
        # "clip" writes straight into `out`, where "raise" goes through a copy.
        bits.take(at, out=byte, mode="clip")
        np.bitwise_or(byte, bit, out=byte)
        bits[at] = byte
        # Of several writes to one byte the last wins. The losers find their bit missing and
        # write again; one of them wins each time, so that eight turns are the most.
        lost = np.flatnonzero((bits.take(at) & bit) == 0)
        while lost.size:
            again, wanted = at[lost], bit[lost]
            bits[again] = bits.take(again) | wanted
            lost = lost[(bits.take(again) & wanted) == 0]


def contains_keys(bits: BitArray, hash_count: int, keys: Int64Array) -> Flags:
    """Return bool[n]: are all bits of the key set? O(n), less for absent keys."""
    found = np.zeros(keys.size, np.bool_)
    for part, columns in hash_blocks(keys):
        _test_block(bits, hash_count, columns, found[part])
    return found


def _test_block(bits: BitArray, hash_count: int, columns: UInt64Array, found: Flags) -> None:
    """Set `found` where all bits are set; keys without one drop out on the way."""
    modulus, left = np.uint64(bits.size), None
    low = _low_bytes(columns)
    _double(columns)
    byte, bit, held = np.empty((3, found.size), np.uint8)
    held.fill(1)
    for _ in range(hash_count):
        bits.take(_next_places(columns, _TO_BYTE, modulus), out=byte, mode="clip")
        np.bitwise_and(low[0], 7, out=bit)
        np.add(low[0], low[1], out=low[0])
        np.right_shift(byte, bit, out=byte)
        np.bitwise_and(held, byte, out=held)
        if np.count_nonzero(held.view(np.bool_)) <= held.size // 2:  # go on with those still in
            still = np.flatnonzero(held)
            left = still if left is None else left[still]
            rest = columns[:, : still.size]
            rest[:2] = columns[:2, still]
            columns, low, held = rest, low[:, still], held[still]
            byte, bit = byte[: still.size], bit[: still.size]
    found[slice(None) if left is None else left] = held.view(np.bool_)


def count_ones(bits: BitArray) -> int:
    """Return the number of bits set. O(bytes), with scratch of a constant size."""
    words, step = bits.view(np.uint64), 1 << 20
    parts = (words[at : at + step] for at in range(0, words.size, step))
    return sum(int(np.bitwise_count(part).sum(dtype=np.int64)) for part in parts)
