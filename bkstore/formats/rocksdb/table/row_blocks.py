"""Rows as data blocks, many at a time: keys of one fixed width, values of 8 bytes, as in a bookie's
`locations` databases; byte for byte those that RocksDB writes. Source:
`table/block_based/block_builder.cc`, `flush_block_policy.cc`.

Three arrays give all of it: how many bytes each key shares with the one before, the size of each
entry, and which rows end a block. Entries with equal numbers of shared bytes have equal sizes, so
they are put together as records, from whole words, and scattered to their places in the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.formats.rocksdb.compression import ByteArray
from bkstore.formats.rocksdb.keys import TRAILER_BYTES, ValueType
from bkstore.formats.rocksdb.table.key_hash import UInt64Array
from bkstore.ids import Int64Array

_VALUE_BYTES = 8
_LENGTH_BYTES = 3  # shared, non-shared, value length: one byte each
_ENTRY_BYTES = _LENGTH_BYTES + TRAILER_BYTES + _VALUE_BYTES  # of an entry without its user key
_DEVIATION = 10  # percent by which a block may stay below its size


@dataclass(frozen=True, slots=True)
class BlockShape:
    """How rows are divided into data blocks: the size at which one ends, in bytes, and the number
    of rows between restart points."""

    block_bytes: int = 64 << 10
    restart_interval: int = 16


def count_shared_bytes(keys: UInt64Array) -> Int64Array:
    """Return int64[n]: how many bytes each key shares with the one before it, 0 for the first.
    `keys` is uint64[w, n], big-endian words. Raises `InvalidArgument` unless they ascend."""
    shared = np.zeros(keys.shape[1], np.int64)
    ascends = np.zeros(max(keys.shape[1] - 1, 0), np.bool_)
    # From the last word to the first: a difference in an earlier word overrides later ones.
    for number in reversed(range(keys.shape[0])):
        word = keys[number]
        changed_bits = word[1:] ^ word[:-1]
        differs = changed_bits != 0
        if not differs.any():
            continue
        # The exponent of a float is the number of its highest bit. Clear the bit below that one
        # before the conversion, so that rounding cannot reach the next power of two.
        changed_bits &= ~(changed_bits >> np.uint64(1))
        exponents = changed_bits.astype(np.float64).view(np.int64) >> 52  # biased by 1023
        # Bits are counted from the end of the word, bytes from the beginning of the key.
        equal_bytes = 8 * number + 7 - (exponents - 1023 >> 3)
        np.copyto(shared[1:], equal_bytes, where=differs)
        np.copyto(ascends, word[1:] > word[:-1], where=differs)
    if not ascends.all():
        row = int(np.flatnonzero(~ascends)[0]) + 1
        key = keys[:, row].astype(">u8").tobytes().hex()
        raise InvalidArgument(
            f"keys of a table file must ascend: {key} is not above the one before"
        )
    return shared


def end_blocks(shared: Int64Array, words: int, shape: BlockShape) -> Int64Array:
    """Return the ends of the blocks that these rows fill, exclusive row numbers, int64[b]. Blocks
    end where RocksDB would end them. Rows behind the last end are in a block that further rows may
    join. `shared` has how many bytes each key shares with the one before, as `count_shared_bytes`
    returns it; rows at restart points, whose keys are stored whole, are allowed for here."""
    whole_bytes = _ENTRY_BYTES + 8 * words
    sizes = whole_bytes - shared
    low_limit = (shape.block_bytes * (100 - _DEVIATION) + 99) // 100
    # RocksDB's estimate of a further entry's size: its whole key and value, 4 bytes, and a byte for
    # each length.
    next_bytes = 8 * words + TRAILER_BYTES + _VALUE_BYTES + 6
    # The smallest size at which the rule below can end a block; more rows than any block has.
    least = max(min(low_limit + 1, shape.block_bytes), shape.block_bytes - next_bytes - 3)
    window = shape.block_bytes // (_ENTRY_BYTES + 1) + 2
    ends: list[int] = []
    start = 0
    while start < sizes.size:
        # The size of the block with 1, 2, ... rows: entries and restart points (4 bytes each),
        # without the 4 bytes of their number.
        filled = sizes[start : start + window].copy()
        filled[:: shape.restart_interval] = whole_bytes + 4
        filled = filled.cumsum()
        # The block ends if it is full, or if it is nearly full and the next row would exceed it.
        for rows in range(int(filled.searchsorted(least - 4)) + 1, filled.size + 1):
            size = int(filled[rows - 1]) + 4
            point = 4 if rows % shape.restart_interval == 0 else 0
            exceeds = size + next_bytes + point > shape.block_bytes
            if (exceeds and size > low_limit) or size >= shape.block_bytes:
                break
        else:  # no row ends the block: it has room for more
            break
        if start + rows == sizes.size:  # only a following row ends it
            break
        start += rows
        ends.append(start)
    return np.array(ends, np.int64)


def encode_blocks(
    keys: UInt64Array,
    values: Int64Array,
    shared: Int64Array,
    ends: Int64Array,
    restart_interval: int,
) -> tuple[ByteArray, Int64Array]:
    """Return (buffer, end of each block's contents in it: int64[b]). Block i has the rows up to
    ``ends[i]``; the contents of the blocks follow each other, uncompressed. `shared` has how many
    bytes each key shares with the one before. All rows are puts with sequence number 0, as in files
    that are to be ingested. Some 15 ns a row.

    >>> keys = np.array([[5, 5], [7, 8]], np.uint64)
    >>> shared = count_shared_bytes(keys)
    >>> buffer, ends = encode_blocks(keys, np.array([1028, 1100]), shared, np.array([2]), 16)
    >>> buffer[:3].tolist(), ends.tolist()  # shared, non-shared, value length
    ([0, 24, 8], [63])
    """
    words = keys.shape[0]
    row_starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    rows_of_block = ends - row_starts
    row_count = int(ends[-1])
    # Find the restart points: every `restart_interval` rows of each block. Keys are whole there.
    restarts_of_block = -(-rows_of_block // restart_interval)
    restart_ends = restarts_of_block.cumsum()
    first_restarts = restart_ends - restarts_of_block
    blocks = np.repeat(np.arange(ends.size), restarts_of_block)
    within = np.arange(blocks.size) - first_restarts[blocks]
    restart_rows = row_starts[blocks] + within * restart_interval
    keys, values, shared = keys[:, :row_count], values[:row_count], shared[:row_count].copy()
    shared[restart_rows] = 0
    # Each entry begins behind all entries before it, and the ends of the blocks before: these are
    # their restart points and the number of them, 4 bytes each.
    sizes = _ENTRY_BYTES + 8 * words - shared
    entry_ends = sizes.cumsum()
    end_bytes = 4 * restarts_of_block + 4
    bytes_before = end_bytes.cumsum() - end_bytes
    positions = entry_ends - sizes
    positions += np.repeat(bytes_before, rows_of_block)
    content_ends = entry_ends[ends - 1] + bytes_before + end_bytes
    content_starts = content_ends - np.diff(content_ends, prepend=0)
    buffer = np.empty(int(content_ends[-1]) + _ENTRY_BYTES + 8 * words, np.uint8)
    # Write the entries: whole restart intervals of equal entries at once, all others one by one.
    interval_ends = np.append(restart_rows[1:], row_count)
    rows = _Rows(buffer, positions, keys, values, shared)
    others = _write_equal_intervals(rows, restart_rows, interval_ends, restart_interval)
    _write_entries(rows, others)
    # Write the restart points of each block behind its entries, then their number.
    words32 = np.ndarray((buffer.size - 3,), "<u4", buffer, strides=(1,))
    points = content_ends[blocks] - end_bytes[blocks] + 4 * within
    words32[points] = positions[restart_rows] - content_starts[blocks]
    words32[content_ends - 4] = restarts_of_block
    return buffer, content_ends


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows, and where their entries begin in the buffer of blocks."""

    buffer: ByteArray
    positions: Int64Array
    keys: UInt64Array
    values: Int64Array
    shared: Int64Array


def _write_equal_intervals(
    rows: _Rows, starts: Int64Array, ends: Int64Array, interval: int
) -> Int64Array:
    """Write the entries of regular restart intervals, and return the rows of all other ones. An
    interval has the rows ``starts[i]`` to before ``ends[i]``. It is regular if it has `interval`
    rows, and all but the first share as many bytes as is most frequent: then its entries have equal
    sizes, and a field of all entries is an array with equal distances."""
    # `usual` is the most frequent number of shared bytes. Count the rows with it in each interval:
    # in a regular one, all rows but the first, whose key is whole.
    usual = int(np.bincount(rows.shared).argmax())
    is_usual = rows.shared == usual
    usual_rows = np.add.reduceat(is_usual, starts, dtype=np.int64)
    is_equal = (usual_rows == interval - 1) & (ends - starts == interval)
    if not usual or interval == 1 or not is_equal.any():
        return np.arange(rows.shared.size)
    # Build the regular intervals as the rows of a matrix of bytes: a first entry of `whole` bytes,
    # then the followers, of `size` bytes each.
    firsts = starts[is_equal]
    followers = firsts[:, None] + np.arange(1, interval)
    first_records = _make_records(rows.keys, rows.values, firsts, 0)
    whole, size = first_records.itemsize, first_records.itemsize - usual
    interval_bytes = whole + (interval - 1) * size
    records = np.empty((firsts.size, interval_bytes), np.uint8)

    def column(offset: int, dtype: str) -> npt.NDArray[Any]:
        """Return a view of one field, at `offset` of an entry, in all entries but the first of
        their interval."""
        shape, strides = (firsts.size, interval - 1), (interval_bytes, size)
        return np.ndarray(shape, dtype, records, whole + offset, strides)

    # Write whole words of keys first. The first word begins with shared bytes, which an entry does
    # not have: they lie on its lengths and on the value before it, which are written afterwards.
    first_word, skipped = divmod(usual, 8)
    offset = _LENGTH_BYTES - skipped
    for word in rows.keys[first_word:]:
        column(offset, ">u8")[...] = word[followers]
        offset += 8
    column(offset, "<u8")[...] = ValueType.VALUE
    column(offset + TRAILER_BYTES, ">i8")[...] = rows.values[followers]
    records[:, :whole] = first_records.view(np.uint8).reshape(firsts.size, whole)
    for offset, length in enumerate(_lengths(rows.keys.shape[0], usual)):
        column(offset, "u1")[...] = length
    # Copy each interval to its position in the buffer.
    places = np.ndarray(
        (rows.buffer.size - interval_bytes + 1,), f"V{interval_bytes}", rows.buffer, strides=(1,)
    )
    places[rows.positions[firsts]] = records.view(f"V{interval_bytes}").ravel()
    return np.flatnonzero(np.repeat(~is_equal, ends - starts))


def _lengths(words: int, shared_bytes: int) -> tuple[int, int, int]:
    """Return the three lengths in front of an entry."""
    return shared_bytes, 8 * words + TRAILER_BYTES - shared_bytes, _VALUE_BYTES


def _write_entries(rows: _Rows, selected: Int64Array) -> None:
    """Write the entries of the selected rows at their positions in the buffer. Entries that share
    equally many bytes have one size, and are written together."""
    shared = rows.shared[selected]
    for shared_bytes in np.flatnonzero(np.bincount(shared)).tolist():
        group = selected[shared == shared_bytes]
        records = _make_records(rows.keys, rows.values, group, shared_bytes)
        size = records.itemsize
        places = np.ndarray((rows.buffer.size - size + 1,), f"V{size}", rows.buffer, strides=(1,))
        places[rows.positions[group]] = records


def _make_records(
    keys: UInt64Array, values: Int64Array, rows: Int64Array, shared_bytes: int
) -> npt.NDArray[np.void]:
    """Return the entries of these rows, each of which shares `shared_bytes` bytes with the row
    before, as an array of void items of the entry's size."""
    words, first_word, skipped = keys.shape[0], *divmod(shared_bytes, 8)
    names = [f"word {number}" for number in range(first_word, words)]
    fields = [("lengths", f"V{_LENGTH_BYTES}"), *((name, ">u8") for name in names)]
    # The first word of the key is written whole. Its shared bytes lie where the lengths belong, and
    # before the entry: these are overwritten or cut off.
    whole = np.empty(rows.size, [*fields, ("trailer", "<u8"), ("value", ">i8")])
    for name, word in zip(names, keys[first_word:]):
        whole[name] = word[rows]
    whole["trailer"] = ValueType.VALUE  # sequence number 0
    whole["value"] = values[rows]
    all_bytes = whole.view(np.uint8).reshape(rows.size, whole.itemsize)
    for offset, length in enumerate(_lengths(words, shared_bytes), start=skipped):
        all_bytes[:, offset] = length
    size = whole.itemsize - skipped
    return np.ndarray((rows.size,), f"V{size}", whole, skipped, (whole.itemsize,))
