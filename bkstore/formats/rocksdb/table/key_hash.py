"""The 64-bit hash of keys in Bloom filters: XXPH3, a preview of XXH3 that RocksDB keeps, with seed
0, of keys of one, two or three words. Source: `util/xxph3.h` (`XXPH3_len_4to8_64b`, `_9to16_64b`,
`_17to128_64b`), `util/hash.cc` (`Hash64`).

Products of 128 bits are made of four of 64 bits. Arrays are cut into chunks that stay in the cache
of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
_HashWords = Callable[..., UInt64Array]

_CHUNK_KEYS = 1 << 13
_LOW_HALF, _HALF_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
_PRIME32_1 = np.uint64(0x9E3779B1)
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = np.uint64(0x165667B19E3779F9)
_SECRET = (
    np.uint64(0xBE4BA423396CFEB8),
    np.uint64(0x1CAD21F72C81017C),
    np.uint64(0xDB979083E96DD4DE),
    np.uint64(0x1F67B3B7A4A44072),
)
"""The first words of XXH3's default secret, little-endian."""


def hash_keys(keys: UInt64Array) -> UInt64Array:
    """Return the hashes of keys for the Bloom filters of table files, uint64[n]. The hash is XXPH3,
    RocksDB's preview of XXH3.

    `keys` is uint64[w, n]: row i has word i of each key, read as big-endian; w is 1, 2 or 3. Some
    20 ns a key.

    >>> hex(hash_keys(np.array([[5], [7]], np.uint64))[0])
    '0xe6b4a2a6e5cd9536'
    """
    hash_chunk: _HashWords = (_hash_word, _hash_two_words, _hash_three_words)[keys.shape[0] - 1]
    hashes = np.empty(keys.shape[1], np.uint64)
    for start in range(0, hashes.size, _CHUNK_KEYS):
        # XXPH3 reads the bytes of a key as little-endian words.
        *leading, last = keys[:, start : start + _CHUNK_KEYS].byteswap()
        # The keys of one ledger differ in the last word only. What the hash computes from equal
        # words is then computed once for the chunk, and broadcast to the length of `last`.
        hashes[start : start + _CHUNK_KEYS] = hash_chunk(*map(_first_if_all_equal, leading), last)
    return hashes


def _first_if_all_equal(words: UInt64Array) -> UInt64Array:
    """Return uint64[1], the first word, if all are equal; otherwise `words`."""
    return words[:1] if (words == words[0]).all() else words


def _hash_word(word: UInt64Array) -> UInt64Array:
    """Return XXPH3's hash of keys of 8 bytes, given as one word each."""
    keyed = word ^ _SECRET[0]
    mixed = (keyed ^ keyed >> np.uint64(51)) * _PRIME32_1 + np.uint64(8)  # the key's length
    return _avalanche((mixed ^ mixed >> np.uint64(47)) * _PRIME64_2)


def _hash_two_words(first: UInt64Array, second: UInt64Array) -> UInt64Array:
    """Return XXPH3's hash of keys of 16 bytes, given as two words each."""
    low, high = first ^ _SECRET[0], second ^ _SECRET[1]
    mixed = _fold_product(low, high)
    mixed += low
    mixed += high
    mixed += np.uint64(16)  # the key's length
    return _avalanche(mixed)


def _hash_three_words(first: UInt64Array, second: UInt64Array, third: UInt64Array) -> UInt64Array:
    """Return XXPH3's hash of keys of 24 bytes, given as three words each."""
    # The last 16 bytes and the first 16, which overlap, and the length.
    mixed = _fold_product(second ^ _SECRET[2], third ^ _SECRET[3])
    mixed += _fold_product(first ^ _SECRET[0], second ^ _SECRET[1])
    mixed += np.uint64(24 * _PRIME64_1 & 0xFFFF_FFFF_FFFF_FFFF)
    return _avalanche(mixed)


def _fold_product(left: UInt64Array, right: UInt64Array) -> UInt64Array:
    """Return the exclusive or of the upper and the lower word of each 128-bit product. As numpy has
    no such products, the upper word is added up from products of 32-bit halves."""
    left_low, left_high = left & _LOW_HALF, left >> _HALF_BITS
    right_low, right_high = right & _LOW_HALF, right >> _HALF_BITS
    high_low = left_high * right_low
    cross = left_low * right_low
    cross >>= _HALF_BITS
    cross += high_low & _LOW_HALF
    cross += left_low * right_high
    # The high word: the carries of the cross products, and the product of the high halves.
    cross >>= _HALF_BITS
    high_low >>= _HALF_BITS
    cross += high_low
    cross += left_high * right_high
    cross ^= left * right
    return cross


def _avalanche(mixed: UInt64Array) -> UInt64Array:
    """Return hashes whose bits all depend on all bits of `mixed`; changes it in place."""
    mixed ^= mixed >> np.uint64(37)
    mixed *= _PRIME64_3
    mixed ^= mixed >> _HALF_BITS
    return mixed
