"""The entries of a block, one at a time: of meta blocks, and data blocks with keys of any width.
`SearchableBlock` looks up single keys: restart points, where keys are whole, are searched by
halves, and the few entries after one of them are decoded. Source:
`table/block_based/block_builder.cc`, `data_block_hash_index.h`, `block.cc` (`BinarySeek`).

    entries         varint shared, varint non-shared, varint value length, key suffix, value
    u32 each        restart points: offsets of the entries with whole keys (shared 0)
    u8 each, u16    only with a hash index: its buckets, and their number
    u32             number of restart points; the top bit is set with a hash index

The first `shared` bytes of a key are those of the key before it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.coding import encode_varint, read_uint, read_varint
from bkstore.formats.rocksdb.keys import TRAILER_BYTES, split_internal_key

HASH_INDEX_BIT = 1 << 31
FEATURE_BITS = 0x7000_0000  # of later versions: values apart from keys, uniform keys
_LENGTHS = 3  # shared, non-shared, value length
_SHORT = 0x80  # lengths below are varints of one byte


class BlockEntry(NamedTuple):
    """One entry: its key, its value, and the offset of the value in the contents."""

    key: bytes
    value: bytes
    value_offset: int


def find_restarts(contents: bytes | memoryview) -> tuple[int, int]:
    """Return (offset of the restart points, their number) of a block. Restart points are offsets of
    entries with whole keys, after the entries; their number is at the end, with flags in its high
    bits. Raises `CorruptionError` if they do not fit, `UnsupportedLayout` for features of a later
    RocksDB."""
    packed = read_uint(contents, len(contents) - 4, 4)
    end = len(contents) - 4
    if packed & FEATURE_BITS:
        raise UnsupportedLayout(f"block with features {packed & FEATURE_BITS:#x} is not supported")
    if packed & HASH_INDEX_BIT:  # a hash index between them: its buckets, and their number (u16)
        end -= 2
        end -= read_uint(contents, end, 2)
    count = packed & ~HASH_INDEX_BIT
    start = end - 4 * count
    if count == 0 or start < 0:
        reason = f"block of {len(contents)} bytes cannot have {count} restart points"
        raise CorruptionError(None, None, reason)
    return start, count


def block_entries(contents: bytes) -> Iterator[BlockEntry]:
    """Yield the entries of a block in order. Raises `CorruptionError` (offset in the contents) for
    one that does not fit. Some 1 us an entry."""
    end, _ = find_restarts(contents)
    return entries_from(contents, 0, end)


def entries_from(contents: bytes, start: int, end: int) -> Iterator[BlockEntry]:
    """Yield the entries from `start`, the offset of one with a whole key, up to `end`, where all
    entries of the block end. Raises as `block_entries`."""
    position, key = start, b""
    while position < end:
        entry_offset = position
        lengths = contents[position : position + _LENGTHS]
        if position + _LENGTHS <= end and max(lengths) < _SHORT:  # varints of one byte each
            shared, suffix_bytes, value_bytes = lengths
            position += _LENGTHS
        else:
            shared, position = read_varint(contents, position)
            suffix_bytes, position = read_varint(contents, position)
            value_bytes, position = read_varint(contents, position)
        value_offset = position + suffix_bytes
        if shared > len(key) or value_offset + value_bytes > end:
            raise CorruptionError(None, entry_offset, "entry runs past its block")
        key = key[:shared] + contents[position:value_offset]
        position = value_offset + value_bytes
        yield BlockEntry(key, contents[value_offset:position], value_offset)


class FoundRow(NamedTuple):
    """One row of a block: user key, sequence number, type and value."""

    key: bytes
    sequence: int
    code: int
    value: bytes


class SearchableBlock:
    """The contents of a data block, verified and decompressed, for look-ups by user keys. Only the
    entries that a look-up decodes are checked: raises `CorruptionError` (offset in the contents)
    for one that does not fit, `UnsupportedLayout` for features of a later RocksDB.

    A look-up takes some 1 us for each halving of the restart points, and for each entry from a
    restart point on: some 25 us in a bookie's block of 64 KiB. Threads: may be shared.
    """

    def __init__(self, contents: bytes) -> None:
        self._contents = contents
        self._end, count = find_restarts(contents)
        self._restarts: tuple[int, ...] = struct.unpack_from(f"<{count}I", contents, self._end)

    def __len__(self) -> int:
        """Return the size of the contents in bytes."""
        return len(self._contents)

    def end_rows(self) -> tuple[FoundRow, FoundRow]:
        """Return the first and the last row. Raises `CorruptionError` if the block has no rows."""
        first = next(entries_from(self._contents, self._restarts[0], self._end), None)
        last = None
        for entry in entries_from(self._contents, self._restarts[-1], self._end):
            last = entry
        if first is None or last is None:
            raise CorruptionError(None, None, "data block has no rows")
        return (
            FoundRow(*split_internal_key(first.key), first.value),
            FoundRow(*split_internal_key(last.key), last.value),
        )

    def find_newest(self, key: bytes) -> FoundRow | None:
        """Return the newest row of a key, None if the block has none."""
        for entry in entries_from(self._contents, self._seek(key), self._end):
            if entry.key[:-TRAILER_BYTES] >= key:
                user_key, sequence, code = split_internal_key(entry.key)
                return FoundRow(key, sequence, code, entry.value) if user_key == key else None
        return None

    def last_key_before(self, stop: bytes) -> bytes | None:
        """Return the highest key below `stop`, None if the block has none."""
        last_key: bytes | None = None
        for entry in entries_from(self._contents, self._seek(stop), self._end):
            if entry.key[:-TRAILER_BYTES] >= stop:
                break
            last_key = entry.key
        return None if last_key is None else split_internal_key(last_key)[0]

    def _seek(self, key: bytes) -> int:
        """Return the offset of the last entry with a whole key before all rows of `key`, else that
        of the first entry."""
        following = bisect_left(range(len(self._restarts)), key, key=self._key_at_restart)
        return self._restarts[max(following - 1, 0)]

    def _key_at_restart(self, number: int) -> bytes:
        """Return the user key at a restart point."""
        offset = self._restarts[number]
        if offset + 3 > self._end:
            raise CorruptionError(None, offset, "restart point is not inside the entries")
        # The three lengths are varints, of one byte each in most entries.
        shared, key_bytes, value_bytes = self._contents[offset : offset + 3]
        position = offset + 3
        if max(shared, key_bytes, value_bytes) >= _SHORT:
            shared, position = read_varint(self._contents, offset)
            key_bytes, position = read_varint(self._contents, position)
            _, position = read_varint(self._contents, position)
        if shared or key_bytes < TRAILER_BYTES or position + key_bytes > self._end:
            raise CorruptionError(None, offset, "restart point without a whole key")
        return self._contents[position : position + key_bytes - TRAILER_BYTES]


def shared_prefix(one: bytes, other: bytes) -> int:
    """Return the number of first bytes that two keys share.

    >>> shared_prefix(b"abc", b"abd")
    2
    """
    length = min(len(one), len(other))
    return next((i for i in range(length) if one[i] != other[i]), length)


def encode_entries(entries: Iterable[tuple[bytes, bytes]], restart_interval: int | None) -> bytes:
    """Return the contents of a block with these keys and values, in this order. An entry has only
    the bytes in which its key differs from the one before, except at restart points, where keys are
    whole: every `restart_interval` entries, or only at the first one if that is None. Some 1 us an
    entry.

    >>> encode_entries([(b"ab", b"1"), (b"ac", b"2")], None).hex(" ")
    '00 02 01 61 62 31 01 01 01 63 32 00 00 00 00 01 00 00 00'
    """
    contents, restart_offsets, previous_key = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        shared_bytes = 0
        if restart_interval and number and number % restart_interval == 0:
            restart_offsets.append(len(contents))
        else:
            shared_bytes = shared_prefix(previous_key, key)
        for length in (shared_bytes, len(key) - shared_bytes, len(value)):
            contents += encode_varint(length)
        contents += key[shared_bytes:] + value
        previous_key = key
    restart_count = len(restart_offsets)
    return bytes(contents) + struct.pack(f"<{restart_count + 1}I", *restart_offsets, restart_count)
