"""Setting and testing bits for arrays of keys: the loops of `BloomFilter` over blocks of hashes.
The bit array is uint8, with bit i in bit ``i mod 8`` of byte ``i div 8``. The positions of a key
are ``(h1 + i * h2) mod 2^63 mod size``. The hashes are doubled first, so that overflow of uint64
does the mod 2^63; a right shift by 1 gives positions, by 4 their bytes (size is a multiple of 8).
Remainders are computed from quotients by a constant, which take numpy a seventh of the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.bloom.murmur3 import BLOCK_KEYS, UInt64Array, hash_blocks
from bkstore.ids import Int64Array

BitArray = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

MAX_FLAG_BYTES = 1 << 24
"""The most bytes of scratch, one for each bit, for setting bits; larger filters use none."""

_TO_POSITION, _TO_BYTE = np.uint64(1), np.uint64(4)


def _low_bytes(columns: UInt64Array) -> npt.NDArray[np.uint8]:
    """Return the low bytes of h1 and h2, whose sums give the bit within its byte."""
    return columns[:2].astype(np.uint8)


def _double_hashes(columns: UInt64Array) -> None:
    """Double h1 and h2, so that their sums overflow at 2^63."""
    np.left_shift(columns[:2], 1, out=columns[:2])


def _next_positions(columns: UInt64Array, shift: np.uint64, modulus: np.uint64) -> Int64Array:
    """Return the positions in the filter that the keys set in this round: bits or bytes, by `shift`
    and `modulus`, the number of them. A round is one of the hash functions. The columns of a key
    are its hash of this round, the step to the next round's, and two of scratch; the first column
    is advanced to the next round."""
    hashed, step, position, quotient = columns
    np.right_shift(hashed, shift, out=position)
    # Compute position % modulus by the quotient: this is faster than numpy's `remainder`.
    np.floor_divide(position, modulus, out=quotient)
    np.multiply(quotient, modulus, out=quotient)
    np.subtract(position, quotient, out=position)
    np.add(hashed, step, out=hashed)
    positions: Int64Array = position.view(np.int64)
    return positions


def set_key_bits(bits: BitArray, hash_count: int, keys: Int64Array) -> None:
    """Set the bits of all keys. O(n); scratch is a few blocks and up to `MAX_FLAG_BYTES`."""
    # It is faster to set a byte for each bit and pack them afterwards, except for few keys, as that
    # takes a pass over all bits.
    if bits.size * 8 > min(MAX_FLAG_BYTES, 16 * hash_count * keys.size):
        for _, columns in hash_blocks(keys):
            _set_bits(bits, hash_count, columns)
        return
    flags = np.zeros(bits.size * 8, np.uint8)
    ones = np.ones(min(keys.size, BLOCK_KEYS), np.uint8)
    for _, columns in hash_blocks(keys):
        _double_hashes(columns)
        for _ in range(hash_count):
            positions = _next_positions(columns, _TO_POSITION, np.uint64(flags.size))
            # This is faster than an assignment if the flags are not in the CPU's cache.
            np.maximum.at(flags, positions, ones[: positions.size])
    np.bitwise_or(bits, np.packbits(flags, bitorder="little"), out=bits)


def _set_bits(bits: BitArray, hash_count: int, columns: UInt64Array) -> None:
    """Set the bits of a block of keys. The first two columns are the keys' hashes h1 and h2; the
    i-th hash function is h1 + i * h2."""
    modulus, (low_hashes, low_steps) = np.uint64(bits.size), _low_bytes(columns)
    _double_hashes(columns)
    masks, key_bytes = np.empty((2, low_hashes.size), np.uint8)
    for _ in range(hash_count):
        # Each key's byte, and its bit in that: the low three bits of h1 + i * h2.
        byte_indexes = _next_positions(columns, _TO_BYTE, modulus)
        np.bitwise_and(low_hashes, 7, out=masks)
        np.left_shift(1, masks, out=masks)
        np.add(low_hashes, low_steps, out=low_hashes)
        # With mode "clip" `take` writes directly into `out`; the default makes a copy first.
        bits.take(byte_indexes, out=key_bytes, mode="clip")
        np.bitwise_or(key_bytes, masks, out=key_bytes)
        bits[byte_indexes] = key_bytes
        # If several keys write to one byte, only the last write counts. Those whose bit is missing
        # write again. Each time one more bit of the byte is set, so this repeats at most 8 times.
        lost = np.flatnonzero((bits.take(byte_indexes) & masks) == 0)
        while lost.size:
            retried, lost_masks = byte_indexes[lost], masks[lost]
            bits[retried] = bits.take(retried) | lost_masks
            lost = lost[(bits.take(retried) & lost_masks) == 0]


def test_key_bits(bits: BitArray, hash_count: int, keys: Int64Array) -> Flags:
    """Return bool[n]: whether all bits of each key are set. O(n), less for absent keys."""
    is_found = np.zeros(keys.size, np.bool_)
    for rows, columns in hash_blocks(keys):
        _test_bits(bits, hash_count, columns, is_found[rows])
    return is_found


def _test_bits(bits: BitArray, hash_count: int, columns: UInt64Array, is_found: Flags) -> None:
    """Set `is_found` to true for the keys of a block whose bits are all set. The first two columns
    are the keys' hashes h1 and h2; the i-th hash function is h1 + i * h2."""
    modulus = np.uint64(bits.size)
    candidates = None  # rows of the keys whose bits were all set so far; None: all keys
    low_hashes, low_steps = _low_bytes(columns)
    _double_hashes(columns)
    key_bytes, bit_numbers, all_set = np.empty((3, is_found.size), np.uint8)
    all_set.fill(1)
    for _ in range(hash_count):
        # Move each key's bit, the low three bits of h1 + i * h2, to bit 0 of its byte.
        bits.take(_next_positions(columns, _TO_BYTE, modulus), out=key_bytes, mode="clip")
        np.bitwise_and(low_hashes, 7, out=bit_numbers)
        np.add(low_hashes, low_steps, out=low_hashes)
        np.right_shift(key_bytes, bit_numbers, out=key_bytes)
        np.bitwise_and(all_set, key_bytes, out=all_set)
        # Once half of the keys have a bit that is not set, go on with the others only.
        if np.count_nonzero(all_set.view(np.bool_)) <= all_set.size // 2:
            passed = np.flatnonzero(all_set)
            candidates = passed if candidates is None else candidates[passed]
            passed_columns = columns[:, : passed.size]
            passed_columns[:2] = columns[:2, passed]
            columns, all_set = passed_columns, all_set[passed]
            low_hashes, low_steps = low_hashes[passed], low_steps[passed]
            key_bytes, bit_numbers = key_bytes[: passed.size], bit_numbers[: passed.size]
    is_found[slice(None) if candidates is None else candidates] = all_set.view(np.bool_)


def count_ones(bits: BitArray) -> int:
    """Return the number of bits set. O(bytes), with scratch of a constant size."""
    words, step = bits.view(np.uint64), 1 << 20
    chunks = (words[start : start + step] for start in range(0, words.size, step))
    return sum(int(np.bitwise_count(chunk).sum(dtype=np.int64)) for chunk in chunks)
