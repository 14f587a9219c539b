"""The rows of many data blocks as arrays: keys of one fixed width, values of 8 bytes, as in a
bookie's `locations` databases. Source: `table/block_based/block_builder.cc`, `db/dbformat.h`.

With such rows each of the three lengths in front of an entry is one byte. Where the rows are is
found for all restart intervals of all blocks side by side: step k finds the k-th row of every
interval. Then all rows are read at once, as words that end where their suffixes end, and the bytes
that a key shares with the one before are filled in. A batch of 8 to 64 blocks keeps the temporary
arrays in the cache of the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.compression import ByteArray
from bkstore.formats.rocksdb.keys import READABLE_TYPES, ValueType, describe_type
from bkstore.formats.rocksdb.table.entries import FEATURE_BITS, HASH_INDEX_BIT
from bkstore.ids import Int64Array

UInt64Array = npt.NDArray[np.uint64]

PADDING_BYTES = 40
"""Bytes before and after the blocks in a buffer, so that whole words can be read around a row."""

_WORD_BYTES = 8
_LENGTH_BYTES = 3  # shared, non-shared, value length
_LONG_LENGTH = 0x80  # lengths from here on take two bytes
_READABLE = np.zeros(256, np.bool_)
_READABLE[[int(value_type) for value_type in READABLE_TYPES]] = True


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """Rows in the order of a table file: by key, of one key newest first. `keys` is uint64[w, n]:
    the big-endian words of the keys, so that their order is that of the bytes. `values` is
    int64[n], big-endian in the file, 0 in a deletion; `sequences` int64[n]; `types` uint8[n] has
    the numbers of `ValueType`: a value, a deletion, or a single deletion."""

    keys: UInt64Array
    values: Int64Array
    sequences: Int64Array
    types: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.values.size)

    def take(self, selection: Any) -> VersionedRows:
        """Return the rows of a slice, a mask or an index array."""
        if isinstance(selection, slice):
            return VersionedRows(
                self.keys[:, selection],
                self.values[selection],
                self.sequences[selection],
                self.types[selection],
            )
        # `np.take` of row numbers takes a tenth of the time that indexing the columns of keys does.
        numbers = np.flatnonzero(selection) if selection.dtype == np.bool_ else selection
        return VersionedRows(
            np.take(self.keys, numbers, axis=1),
            self.values.take(numbers),
            self.sequences.take(numbers),
            self.types.take(numbers),
        )

    def key_at(self, row: int) -> bytes:
        """Return the key of one row as bytes."""
        return self.keys[:, row].astype(">u8").tobytes()


def empty_rows(words: int) -> VersionedRows:
    """Return no rows, with keys of `words` words."""
    no_numbers = np.empty(0, np.int64)
    no_keys = np.empty((words, 0), np.uint64)
    return VersionedRows(no_keys, no_numbers, no_numbers, np.empty(0, np.uint8))


def join_rows(parts: list[VersionedRows], words: int) -> VersionedRows:
    """Return the rows of several arrays, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_rows(words)
    return VersionedRows(
        np.concatenate([part.keys for part in parts], axis=1),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.sequences for part in parts]),
        np.concatenate([part.types for part in parts]),
    )


def decode_rows(
    buffer: ByteArray, starts: Int64Array, ends: Int64Array, words: int
) -> tuple[VersionedRows, Int64Array]:
    """Return (rows, rows of each block: int64[b]) of blocks whose contents are
    ``buffer[starts[i]:ends[i]]``, with keys of `words` * 8 bytes and values of 8. `buffer` has
    `PADDING_BYTES` before the first and after the last block. Some 20 to 30 ns a row.

    Raises `CorruptionError` if a row does not fit its block, or has another width, without telling
    which block it is: decode them one by one to find out. Raises `UnsupportedLayout` for other
    types of rows than values and deletions. The order of keys is not checked.
    """
    intervals = _find_intervals(buffer, starts, ends)
    positions, rows_of_interval, runs_past = _find_rows(buffer, intervals.starts, intervals.ends)
    # The first three bytes of each row are its lengths.
    lengths = _Lengths(buffer[positions], buffer[1:][positions], buffer[2:][positions])
    restarts = np.cumsum(rows_of_interval) - rows_of_interval
    _check_lengths(lengths, restarts, words)
    if runs_past:
        raise CorruptionError(None, None, "row runs past its restart interval")
    rows_of_block = np.zeros(starts.size, np.int64)
    np.add.at(rows_of_block, intervals.blocks, rows_of_interval)
    return _read_rows(buffer, positions, lengths, words), rows_of_block


# -- restart intervals


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Restart intervals of all blocks: where each starts and ends in the buffer, and its block."""

    starts: Int64Array
    ends: Int64Array
    blocks: Int64Array


def _find_intervals(buffer: ByteArray, starts: Int64Array, ends: Int64Array) -> _Intervals:
    """Return the restart intervals of all blocks, in order: from one entry with a whole key to the
    next. A block ends with its restart points (the offsets of such entries), a hash index if it has
    one, and the number of restart points, with flags in its high bits."""
    if (ends - starts < 8).any():  # one restart point, and the number of them
        raise CorruptionError(None, None, "data block is too short for a restart point")
    words32 = _unaligned(buffer, "<u4")
    packed = words32[ends - 4].astype(np.int64)
    if (packed & FEATURE_BITS).any():
        raise UnsupportedLayout("data block with features of a later RocksDB is not supported")
    # The array of restart points ends before that number, and before a hash index.
    array_ends = ends - 4
    has_hash = (packed & HASH_INDEX_BIT) != 0
    if has_hash.any():
        buckets = _unaligned(buffer, "<u2")[array_ends - 2].astype(np.int64)
        array_ends = np.where(has_hash, array_ends - 2 - buckets, array_ends)
    counts = packed & ~HASH_INDEX_BIT
    array_starts = array_ends - 4 * counts
    if ((counts == 0) | (array_starts < starts)).any():
        raise CorruptionError(None, None, "data block has no room for its restart points")
    # Read all restart points, `within` being the number of each in its block. An interval ends
    # where the next one starts, the last one of a block where the entries end.
    firsts = np.cumsum(counts) - counts
    blocks = np.repeat(np.arange(starts.size), counts)
    within = np.arange(blocks.size) - firsts[blocks]
    interval_starts = starts[blocks] + words32[array_starts[blocks] + 4 * within]
    interval_ends = np.append(interval_starts[1:], 0)
    interval_ends[firsts + counts - 1] = array_starts
    # Check: the first interval starts with the block, and none is empty, except in a block without
    # rows.
    is_empty = (counts == 1) & (array_starts == starts)
    descends = interval_ends <= interval_starts
    if (interval_starts[firsts] != starts).any() or (descends & ~is_empty[blocks]).any():
        raise CorruptionError(None, None, "data block has restart points out of order")
    if is_empty.any():
        kept = ~is_empty[blocks]
        return _Intervals(interval_starts[kept], interval_ends[kept], blocks[kept])
    return _Intervals(interval_starts, interval_ends, blocks)


def _unaligned(buffer: ByteArray, dtype: str) -> npt.NDArray[Any]:
    """Return the words of this type at every offset of the buffer, as an overlapping view."""
    count = buffer.size - np.dtype(dtype).itemsize + 1
    return np.ndarray((count,), dtype, buffer, strides=(1,))


# -- rows


class _Lengths(NamedTuple):
    """The three lengths in front of rows, one byte each: uint8[n]."""

    shared: npt.NDArray[np.uint8]
    suffix_bytes: npt.NDArray[np.uint8]
    value_bytes: npt.NDArray[np.uint8]


def _find_rows(
    buffer: ByteArray, starts: Int64Array, ends: Int64Array
) -> tuple[Int64Array, Int64Array, bool]:
    """Return (offset of each row in order, number of rows of each interval, whether a row runs past
    the end of its interval). Step k finds the k-th row of every interval; the search ends at a step
    in which a row runs past. Lengths are taken for one byte each, which the caller checks."""
    suffix_sizes, value_sizes = buffer[1:], buffer[2:]
    steps: list[tuple[Int64Array | None, Int64Array]] = []
    active: Int64Array | None = None  # the intervals that have a k-th row, None: all
    positions, limits = starts, ends
    runs_past = False
    while positions.size and not runs_past:
        steps.append((active, positions))
        next_positions = positions + suffix_sizes[positions]
        next_positions += value_sizes[positions]
        next_positions += _LENGTH_BYTES
        goes_on = next_positions < limits
        if goes_on.all():
            positions = next_positions
            continue
        runs_past = bool((next_positions > limits).any())
        positions, limits = next_positions[goes_on], limits[goes_on]
        active = np.flatnonzero(goes_on) if active is None else active[goes_on]
    # The rows are in the order of steps; put them into the order of the file.
    rows_of_interval = np.zeros(starts.size, np.int64)
    for step, (active, _) in enumerate(steps, 1):
        rows_of_interval[slice(None) if active is None else active] = step
    firsts = np.cumsum(rows_of_interval) - rows_of_interval
    in_order = np.empty(int(rows_of_interval.sum()), np.int64)
    for step, (active, positions) in enumerate(steps):
        in_order[(firsts if active is None else firsts[active]) + step] = positions
    return in_order, rows_of_interval, runs_past


def _check_lengths(lengths: _Lengths, restarts: Int64Array, words: int) -> None:
    """Raise `CorruptionError` unless all lengths are those of keys of `words` words with values of
    8 bytes or none. The rows number `restarts`, the first ones of restart intervals, must have
    whole keys. `shared` and `suffix_bytes` count the trailer of a key (sequence number, type) too.
    """
    shared, suffix_bytes, value_bytes = lengths
    if shared[restarts].any():
        raise CorruptionError(None, None, "first row of a restart interval has no whole key")
    if ((value_bytes != _WORD_BYTES) & (value_bytes != 0)).any():  # a deletion has none
        raise CorruptionError(None, None, "not a bookie's row: its value has not 8 bytes")
    is_odd = shared + suffix_bytes != _WORD_BYTES * (words + 1)
    is_odd |= (shared | suffix_bytes) >= _LONG_LENGTH
    if is_odd.any():
        raise CorruptionError(None, None, f"not a bookie's row: its key has not {8 * words} bytes")


def _read_rows(
    buffer: ByteArray, positions: Int64Array, lengths: _Lengths, words: int
) -> VersionedRows:
    """Return the rows whose entries begin at these offsets, in order. An entry has only the bytes
    of its key behind those shared with the row before: these are filled in. The first row has a
    whole key."""
    count = positions.size
    if not count:
        return empty_rows(words)
    shared = lengths.shared
    suffix_ends = positions + lengths.suffix_bytes
    suffix_ends += _LENGTH_BYTES
    # Read the last word of the key, the trailer, and the value, which lie together: the suffix ends
    # with the trailer, the second of these three words.
    tails = _unaligned(buffer, "V24")[suffix_ends - 16].view(">u8").reshape(-1, 3)
    keys = np.empty((words, count), np.uint64)
    for word in range(words - 1):
        # A word that is not the last is mostly that of the row before: read only changed ones.
        changed = np.flatnonzero(shared < _WORD_BYTES * (word + 1))
        offsets = suffix_ends[changed] - _WORD_BYTES * (words + 1 - word)
        new = _unaligned(buffer, ">u8")[offsets].astype(np.uint64)
        whole = _fill_shared(new, shared[changed], _WORD_BYTES * word)
        keys[word] = np.repeat(whole, np.diff(changed, append=count))
    last_word = tails[:, 0].astype(np.uint64)
    keys[words - 1] = _fill_shared(last_word, shared, _WORD_BYTES * (words - 1))
    trailers = _fill_shared(tails[:, 1].astype(np.uint64), shared, _WORD_BYTES * words).byteswap()
    types = trailers.astype(np.uint8)
    values = tails[:, 2].astype(np.int64)
    values = _check_values(types, values, lengths.value_bytes)
    return VersionedRows(keys, values, (trailers >> np.uint64(8)).view(np.int64), types)


def _fill_shared(new: UInt64Array, shared: npt.NDArray[np.uint8], word_offset: int) -> UInt64Array:
    """Return the words at `word_offset` of some keys, in order. In `new` only the bytes from the
    key's byte number ``shared[i]`` on are valid; the ones before are equal to those of the key
    before, and are filled in. The first key shares nothing."""
    most = min(int(shared.max()) - word_offset, _WORD_BYTES)
    if most <= 0:
        return new
    # `most` is the greatest number of shared bytes in this word. Fill in the keys that share fewer
    # first. The leading `most` bytes of all others are those of the last such key before them.
    fewer = np.flatnonzero(shared < word_offset + most)
    whole = _fill_shared(new[fewer], shared[fewer], word_offset)
    new_bytes = np.uint64((1 << 8 * (_WORD_BYTES - most)) - 1)
    filled = np.repeat(whole & ~new_bytes, np.diff(fewer, append=new.size))
    filled |= new & new_bytes
    filled[fewer] = whole
    return filled


def _check_values(
    types: npt.NDArray[np.uint8], values: Int64Array, value_bytes: npt.NDArray[np.uint8]
) -> Int64Array:
    """Return the values, 0 for deletions. Raises `CorruptionError` if a value does not have 8 bytes
    or a deletion has one, and for unknown types; `UnsupportedLayout` for types not read here."""
    is_value = types == ValueType.VALUE
    if is_value.all():
        if (value_bytes != _WORD_BYTES).any():
            raise CorruptionError(None, None, "not a bookie's row: its value has not 8 bytes")
        return values
    is_readable = _READABLE[types]
    if not is_readable.all():
        code = int(types[~is_readable][0])
        if code in set(ValueType):
            raise UnsupportedLayout(f"row of type {describe_type(code)} is not supported")
        raise CorruptionError(None, None, f"row has an unknown type: {code}")
    if (value_bytes != np.where(is_value, _WORD_BYTES, 0)).any():
        raise CorruptionError(None, None, "not a bookie's row: its value has not 8 bytes")
    return np.where(is_value, values, 0)
