"""Looking up single keys in a data block: restart points, where keys are whole, are searched by
halves, and the few entries after one of them are decoded. Source: `table/block_based/block.cc`
(`BinarySeek`)."""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.coding import read_varint
from bkstore.formats.rocksdb.keys import TRAILER_BYTES, split_internal_key
from bkstore.formats.rocksdb.table.entries import ONE_BYTE_VARINT_END, entries_from, find_restarts


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
        shared, key_bytes, value_bytes = self._contents[offset : offset + 3]
        position = offset + 3
        if max(shared, key_bytes, value_bytes) >= ONE_BYTE_VARINT_END:
            shared, position = read_varint(self._contents, offset)
            key_bytes, position = read_varint(self._contents, position)
            _, position = read_varint(self._contents, position)
        if shared or key_bytes < TRAILER_BYTES or position + key_bytes > self._end:
            raise CorruptionError(None, offset, "restart point without a whole key")
        return self._contents[position : position + key_bytes - TRAILER_BYTES]
