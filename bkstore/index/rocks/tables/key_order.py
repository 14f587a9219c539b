"""Comparisons of keys as columns of big-endian words: uint64[w, n], in the order of their bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.formats.rocksdb.table.rows import UInt64Array, VersionedRows

BoolArray = npt.NDArray[np.bool_]

WORD_BYTES = 8


def as_words(keys: list[bytes], words: int) -> UInt64Array:
    """Return keys as columns of 64-bit words, uint64[words, n]: shorter keys get zeros at their
    end, longer ones are cut. This keeps the order between a separator, which may have any length,
    and keys of this width.

    >>> as_words([bytes(7) + b"\\x05", b"\\x01"], 1).tolist()
    [[5, 72057594037927936]]
    """
    width = WORD_BYTES * words
    joined = b"".join(key[:width].ljust(width, b"\0") for key in keys)
    return np.frombuffer(joined, ">u8").reshape(-1, words).T.astype(np.uint64)


def next_key(key: bytes) -> bytes | None:
    """Return the next key of the same width, None after the last one.

    >>> next_key(bytes([1, 255])), next_key(bytes([255, 255]))
    (b'\\x02\\x00', None)
    """
    number = int.from_bytes(key, "big") + 1
    return None if number >> 8 * len(key) else number.to_bytes(len(key), "big")


def next_of_width(start: bytes, width: int) -> bytes:
    """Return the lowest key of a width that is not below `start`; `start` itself if there is none.

    >>> next_of_width(b"\\x01", 2), next_of_width(b"\\x01\\x02\\x00", 2)
    (b'\\x01\\x00', b'\\x01\\x03')
    """
    if len(start) <= width:
        return start.ljust(width, b"\0")
    number = int.from_bytes(start[:width], "big") + 1
    return start if number >> 8 * width else number.to_bytes(width, "big")


def pack_keys(keys: UInt64Array) -> UInt64Array | None:
    """Return one number for each of the `keys`, uint64[w, n], n > 0, in the same order: uint64[n].
    Return None if the words of these keys differ in more than 64 bits together.

    >>> pack_keys(np.array([[7, 7, 9], [5, 6, 2]], np.uint64)).tolist()
    [3, 4, 16]
    """
    packed, shift = np.zeros(keys.shape[1], np.uint64), 0
    for word in keys[::-1]:  # from the last one, which is the lowest
        lowest = word.min()
        bits = int(word.max() - lowest).bit_length()
        if shift + bits > 64:
            return None
        if bits:  # otherwise all are alike
            packed |= (word - lowest) << np.uint64(shift)
        shift += bits
    return packed


def compare_keys(left: UInt64Array, right: UInt64Array) -> tuple[BoolArray, BoolArray]:
    """Return (left < right, left == right) for each pair of keys, uint64[words, n] on both sides. A
    word decides if all words before it are equal; so this goes from the last word to the first."""
    lower, equal = left[-1] < right[-1], left[-1] == right[-1]
    for word in range(left.shape[0] - 2, -1, -1):
        word_equal = left[word] == right[word]
        if word_equal.all():
            continue
        lower = (left[word] < right[word]) | (word_equal & lower)
        equal &= word_equal
    return lower, equal


def is_ascending(rows: VersionedRows) -> bool:
    """Return whether rows are in order: by key, of one key by falling sequence number, with no two
    alike."""
    lower, equal = compare_keys(rows.keys[:, :-1], rows.keys[:, 1:])
    if lower.all():
        return True
    return bool((lower | (equal & (rows.sequences[:-1] > rows.sequences[1:]))).all())


def first_not_below(keys: UInt64Array, key: UInt64Array) -> int:
    """Return how many of the sorted `keys` are below `key` (uint64[w]): a binary search."""
    return _bounds(keys, key)[0]


def first_above(keys: UInt64Array, key: UInt64Array) -> int:
    """Return how many of the sorted `keys` are not above `key` (uint64[w]): a binary search."""
    return _bounds(keys, key)[1]


def _bounds(keys: UInt64Array, key: UInt64Array) -> tuple[int, int]:
    """Return the positions at which the keys equal to `key` begin and end among sorted `keys`. The
    range is narrowed word by word."""
    low, high = 0, keys.shape[1]
    for column, word in zip(keys, key):
        part = column[low:high]
        high = low + int(np.searchsorted(part, word, "right"))
        low += int(np.searchsorted(part, word))
    return low, high


def rows_between(
    rows: VersionedRows, start: UInt64Array | None, stop: UInt64Array | None
) -> VersionedRows:
    """Return the rows with keys in [start, stop); None is no limit."""
    first = 0 if start is None else first_not_below(rows.keys, start)
    end = len(rows) if stop is None else first_not_below(rows.keys, stop)
    return rows if (first, end) == (0, len(rows)) else rows.take(slice(first, max(first, end)))
