"""The index of a table file: for each data block, in order, a separator key and its handle. A
separator is not below the last key of its block, and below the first one of the next. Source:
`table/format.cc` (`IndexValue`), `table/block_based/index_builder.cc`.

In the entries of a block, values are handles: a varint offset and size. With delta encoding they
have no value length, and inside a restart interval a handle is the signed difference of the size to
that before; the block follows that one. With first keys, the first key of the block comes after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.coding import (
    encode_varint,
    read_signed_varint,
    read_string,
    read_varint,
)
from bkstore.formats.rocksdb.keys import split_internal_key
from bkstore.formats.rocksdb.table.entries import find_restarts, shared_prefix
from bkstore.formats.rocksdb.table.footer import (
    TRAILER_BYTES,
    BlockHandle,
    encode_handle,
    read_handle,
)
from bkstore.ids import Int64Array


@dataclass(frozen=True, slots=True)
class IndexFormat:
    """How the entries of an index are coded: by properties of its file. `has_first_keys` is for the
    lowest level only."""

    has_user_keys: bool
    has_deltas: bool
    has_first_keys: bool


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The blocks of an index in order: user keys as separators, `offsets` and `sizes` int64[n]
    (of contents as stored). `may_continue` is true if rows of one key may be in two blocks: then a
    separator may equal the next block's first key."""

    separators: list[bytes]
    offsets: Int64Array
    sizes: Int64Array
    may_continue: bool

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.separators)


def decode_index(contents: bytes, index_format: IndexFormat) -> BlockIndex:
    """Return the blocks that an index block lists: for each a separator, which is a key not below
    the block's last one, and its offset and size. `index_format` has how entries are encoded in
    this file. Raises `CorruptionError` (offset in the contents) if an entry does not fit or
    separators descend. Some 2 us a block."""
    end, _ = find_restarts(contents)
    data = contents[:end]
    separators: list[bytes] = []
    handles: list[BlockHandle] = []
    position, key, handle = 0, b"", BlockHandle(0, 0)
    while position < end:
        entry_offset = position
        shared, position = read_varint(data, position)
        suffix_bytes, position = read_varint(data, position)
        if not index_format.has_deltas:  # the size of the value, which is a handle
            _, position = read_varint(data, position)
        if shared > len(key) or position + suffix_bytes > end:
            raise CorruptionError(None, entry_offset, "index entry runs past its block")
        key = key[:shared] + data[position : position + suffix_bytes]
        position += suffix_bytes
        # At a restart point, where nothing is shared, the handle is whole; elsewhere, if there are
        # deltas, the block follows the one before, and only the difference of sizes is stored.
        if index_format.has_deltas and shared:
            delta, position = read_signed_varint(data, position)
            next_offset = handle.offset + handle.size + TRAILER_BYTES
            handle = BlockHandle(next_offset, handle.size + delta)
        else:
            handle, position = read_handle(data, position)
        if index_format.has_first_keys:
            _, position = read_string(data, position)
        separators.append(key if index_format.has_user_keys else split_internal_key(key)[0])
        handles.append(handle)
    _check_order(separators, handles, not index_format.has_user_keys)
    columns = np.array(handles, np.int64).reshape(-1, 2)
    # With internal keys as separators, versions of a key may continue in the next block.
    return BlockIndex(
        separators, columns[:, 0], columns[:, 1], may_continue=not index_format.has_user_keys
    )


def join_indexes(parts: Iterable[BlockIndex]) -> BlockIndex:
    """Return one index of the blocks of all `parts`, the partitions of an index of two levels, in
    order. Raises `CorruptionError` if separators descend from one to the next."""
    all_parts = list(parts)
    if not all_parts:
        return BlockIndex([], np.empty(0, np.int64), np.empty(0, np.int64), may_continue=False)
    separators = [separator for part in all_parts for separator in part.separators]
    offsets = np.concatenate([part.offsets for part in all_parts])
    sizes = np.concatenate([part.sizes for part in all_parts])
    may_continue = any(part.may_continue for part in all_parts)
    _check_order(separators, None, may_continue)
    return BlockIndex(separators, offsets, sizes, may_continue)


def _check_order(
    separators: list[bytes], handles: list[BlockHandle] | None, may_repeat: bool
) -> None:
    """Raise `CorruptionError` unless the separators ascend (with `may_repeat`, do not descend), and
    the handles have possible offsets and sizes."""
    for before, separator in pairwise(separators):
        if separator < before or (separator == before and not may_repeat):
            raise CorruptionError(None, None, f"index keys are out of order at {separator.hex()}")
    for handle in handles or ():
        if not (0 <= handle.offset < 1 << 62 and 0 <= handle.size < 1 << 32):
            raise CorruptionError(None, None, f"index has an invalid handle: {tuple(handle)}")


def find_separator(last_key: bytes, next_key: bytes) -> bytes:
    """Return the separator of two blocks: a key from `last_key`, the last one of the first block,
    to before `next_key`, the first one of the second, which has the same length. It is shortened by
    the rule of RocksDB's `BytewiseComparator` (`util/comparator.cc`).

    >>> find_separator(bytes([1, 2, 3]), bytes([1, 7, 0])).hex()
    '0103'
    """
    first_change = shared_prefix(last_key, next_key)
    if first_change < len(next_key) - 1 or last_key[first_change] + 1 < next_key[first_change]:
        return last_key[:first_change] + bytes([last_key[first_change] + 1])
    return last_key  # they differ in the last byte, by one: there is no shorter key between them


def encode_index(separators: Iterable[bytes], handles: Iterable[BlockHandle]) -> bytes:
    """Return the contents of an index block as a bookie's RocksDB writes it: separators without
    sequence numbers (user keys), and a restart point at each entry, so that all keys and handles
    are whole although the format allows differences."""
    contents, restarts = bytearray(), list[int]()
    for separator, handle in zip(separators, handles):
        restarts.append(len(contents))
        contents += encode_varint(0) + encode_varint(len(separator)) + separator
        contents += encode_handle(handle)
    return bytes(contents) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
