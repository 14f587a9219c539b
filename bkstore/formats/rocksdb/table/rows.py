"""The rows of many data blocks as arrays: keys of one fixed width, values of 8 bytes, as in a
bookie's `locations` databases. Source: `table/block_based/block_builder.cc`, `db/dbformat.h`.

With such rows each of the three lengths in front of an entry is one byte, so all restart intervals
of all blocks are decoded side by side: step k decodes the k-th entry of every interval. A key is
read as words that end where its suffix ends; a mask keeps the bytes that it shares with the key
before it. A batch of 8 to 64 blocks keeps the temporary arrays in the cache of the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

_VALUE_BYTES = 8
_LENGTH_BYTES = 3  # shared, non-shared, value length
_LONG_LENGTH = 0x80_80_80
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
        return VersionedRows(
            self.keys[:, selection],
            self.values[selection],
            self.sequences[selection],
            self.types[selection],
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
    `PADDING_BYTES` before the first and after the last block. Some 25 to 40 ns a row.

    Raises `CorruptionError` if a row does not fit its block, or has another width: which block it
    is shows when they are decoded one by one. Raises `UnsupportedLayout` for other types of rows
    than values and deletions. The order of keys is not checked.
    """
    intervals = _find_intervals(buffer, starts, ends)
    steps = _decode_steps(buffer, intervals.starts, intervals.ends, words)
    # Rows were decoded one step a time; put them into the order of the file.
    rows_of_interval = np.zeros(intervals.starts.size, np.int64)
    for step in steps:
        if step.active is None:
            rows_of_interval += 1
        else:
            rows_of_interval[step.active] += 1
    rows = _arrange(steps, rows_of_interval, words)
    rows_of_block = np.zeros(starts.size, np.int64)
    np.add.at(rows_of_block, intervals.blocks, rows_of_interval)
    return rows, rows_of_block


# -- restart intervals


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Restart intervals of all blocks: where each starts and ends in the buffer, and its block."""

    starts: Int64Array
    ends: Int64Array
    blocks: Int64Array


def _find_intervals(buffer: ByteArray, starts: Int64Array, ends: Int64Array) -> _Intervals:
    """Return the restart intervals of all blocks, in order. A block ends with its restart points,
    a hash index if it has one, and their number, with flags in its high bits."""
    if (ends - starts < 8).any():  # one restart point, and the number of them
        raise CorruptionError(None, None, "data block is too short for a restart point")
    words32 = _unaligned(buffer, "<u4")
    packed = words32[ends - 4].astype(np.int64)
    if (packed & FEATURE_BITS).any():
        raise UnsupportedLayout("data block with features of a later RocksDB is not supported")
    # Where the array of restart points ends: before the number, and before a hash index.
    array_ends = ends - 4
    has_hash = (packed & HASH_INDEX_BIT) != 0
    if has_hash.any():
        buckets = _unaligned(buffer, "<u2")[array_ends - 2].astype(np.int64)
        array_ends = np.where(has_hash, array_ends - 2 - buckets, array_ends)
    counts = packed & ~HASH_INDEX_BIT
    array_starts = array_ends - 4 * counts
    if ((counts == 0) | (array_starts < starts)).any():
        raise CorruptionError(None, None, "data block has no room for its restart points")
    # Read all restart points; an interval ends where the next one starts, or the entries end.
    firsts = np.cumsum(counts) - counts
    blocks = np.repeat(np.arange(starts.size), counts)
    within = np.arange(blocks.size) - firsts[blocks]
    interval_starts = starts[blocks] + words32[array_starts[blocks] + 4 * within]
    interval_ends = np.append(interval_starts[1:], 0)
    interval_ends[firsts + counts - 1] = array_starts
    # The first interval starts with the block; none is empty, except in a block without rows.
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


# -- entries


@dataclass(frozen=True, slots=True)
class _Step:
    """The k-th entries of the intervals `active` (None: all): words of keys, values, trailers."""

    active: Int64Array | None
    words: list[UInt64Array]
    values: Int64Array
    trailers: UInt64Array


def _new_byte_masks(words: int) -> UInt64Array:
    """Return uint64[w + 1, 8 w + 9]: the bits of word w that are new if so many bytes are shared.
    The last word is the trailer, which is read in the order of the others."""
    shared = np.arange(8 * words + 9)
    kept = np.clip(shared - 8 * np.arange(words + 1)[:, None], 0, 8)
    masks = [(1 << 64 - 8 * count) - 1 if count else (1 << 64) - 1 for count in range(9)]
    new_bytes: UInt64Array = np.array(masks, np.uint64)[kept]
    return new_bytes


_MASKS = {words: _new_byte_masks(words) for words in (1, 2, 3)}


def _decode_steps(
    buffer: ByteArray, starts: Int64Array, ends: Int64Array, words: int
) -> list[_Step]:
    """Return the entries of all intervals, one step for each of their numbers."""
    heads = _unaligned(buffer, "<u4")
    big_endian = _unaligned(buffer, ">u8")
    steps: list[_Step] = []
    active: Int64Array | None = None
    positions, limits = starts, ends
    key_words: list[UInt64Array] | None = None
    while positions.size:
        lengths = heads[positions]
        shared = (lengths & 0xFF).astype(np.int64)
        suffix_ends = (lengths >> 8 & 0xFF).astype(np.int64) + positions + _LENGTH_BYTES
        value_bytes = (lengths >> 16 & 0xFF).astype(np.int64)
        next_positions = suffix_ends + value_bytes
        _check_lengths(lengths, shared, suffix_ends - positions, key_words is None, words)
        if (next_positions > limits).any():
            raise CorruptionError(None, None, "row runs past its restart interval")
        key_words = _read_words(big_endian, suffix_ends, shared, key_words, words)
        trailers = key_words[words].byteswap()
        values = big_endian[suffix_ends].astype(np.int64)
        values = _check_values(trailers, values, value_bytes)
        steps.append(_Step(active, key_words[:words], values, trailers))
        # Go on with the intervals that have more entries.
        goes_on = next_positions < limits
        if goes_on.all():
            positions = next_positions
            continue
        positions, limits = next_positions[goes_on], limits[goes_on]
        key_words = [word[goes_on] for word in key_words]
        active = np.flatnonzero(goes_on) if active is None else active[goes_on]
    return steps


def _check_lengths(
    lengths: npt.NDArray[np.uint32],
    shared: Int64Array,
    suffix_sizes: Int64Array,
    is_restart: bool,
    words: int,
) -> None:
    """Raise `CorruptionError` if the lengths in front of entries are not those of such keys."""
    width = 8 * words + 8
    # `suffix_sizes` include the lengths themselves.
    is_odd = shared + suffix_sizes != width + _LENGTH_BYTES
    is_odd |= (lengths & _LONG_LENGTH) != 0
    if is_odd.any():
        raise CorruptionError(None, None, f"not a bookie's row: its key has not {8 * words} bytes")
    if is_restart and shared.any():
        raise CorruptionError(None, None, "first row of a restart interval has no whole key")


def _read_words(
    big_endian: npt.NDArray[Any],
    suffix_ends: Int64Array,
    shared: Int64Array,
    before: list[UInt64Array] | None,
    words: int,
) -> list[UInt64Array]:
    """Return the words of the internal keys whose suffixes end at `suffix_ends`: native integers of
    big-endian words, the trailer last. `before` has those of the keys before them."""
    lowest, highest = int(shared.min()), int(shared.max())
    key_words: list[UInt64Array] = []
    for word in range(words + 1):
        if before is not None and lowest >= 8 * word + 8:  # all bytes are those of the key before
            key_words.append(before[word])
            continue
        new = big_endian[suffix_ends - 8 * (words + 1 - word)].astype(np.uint64)
        # Some keys share bytes of this word with the key before: take these from it, by a mask.
        if before is not None and highest > 8 * word:
            mask = _MASKS[words][word][shared]
            new &= mask
            np.invert(mask, out=mask)
            mask &= before[word]
            new |= mask
        key_words.append(new)
    return key_words


def _check_values(trailers: UInt64Array, values: Int64Array, value_bytes: Int64Array) -> Int64Array:
    """Return the values, 0 for deletions; raise for other types and sizes."""
    types = trailers & np.uint64(0xFF)
    is_value = types == ValueType.VALUE
    if is_value.all():
        if (value_bytes != _VALUE_BYTES).any():
            raise CorruptionError(None, None, "not a bookie's row: its value has not 8 bytes")
        return values
    is_readable = _READABLE[types]
    if not is_readable.all():
        code = int(types[~is_readable][0])
        if code in set(ValueType):
            raise UnsupportedLayout(f"row of type {describe_type(code)} is not supported")
        raise CorruptionError(None, None, f"row has an unknown type: {code}")
    if (value_bytes != np.where(is_value, _VALUE_BYTES, 0)).any():
        raise CorruptionError(None, None, "not a bookie's row: its value has not 8 bytes")
    return np.where(is_value, values, 0)


def _arrange(steps: list[_Step], rows_of_interval: Int64Array, words: int) -> VersionedRows:
    """Return the rows of all steps in the order of the file."""
    if not steps:
        return empty_rows(words)
    interval_count, step_count = rows_of_interval.size, len(steps)
    shape = (interval_count, step_count)
    # A line for each interval; places past its last row are left out at the end.
    is_full = bool((rows_of_interval == step_count).all())
    kept = None if is_full else np.arange(step_count) < rows_of_interval[:, None]

    def column(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return a column with a row's value for each step, in the order of rows."""
        matrix = np.empty(shape, arrays[0].dtype)
        for number, (step, array) in enumerate(zip(steps, arrays)):
            if step.active is None:
                matrix[:, number] = array
            else:
                matrix[step.active, number] = array
        return matrix.reshape(-1) if kept is None else matrix[kept]

    key_columns = [column([step.words[word] for step in steps]) for word in range(words)]
    trailers = column([step.trailers for step in steps])
    return VersionedRows(
        np.stack(key_columns),
        column([step.values for step in steps]),
        (trailers >> np.uint64(8)).astype(np.int64),
        trailers.astype(np.uint8),
    )
