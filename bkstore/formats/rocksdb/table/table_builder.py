"""A whole table file, from its first data block to its footer, as RocksDB's `SstFileWriter` writes
it with a bookie's options: block for block, though LZ4's versions differ a little. Source:
`table/block_based/block_based_table_builder.cc`, `table/sst_file_writer.cc`,
`table/meta_blocks.cc`, `DBImpl::GenerateDbSessionId`."""

from __future__ import annotations

import secrets
import socket
import string
from dataclasses import dataclass, field

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.formats.rocksdb.checksums import ChecksumType
from bkstore.formats.rocksdb.coding import encode_varint
from bkstore.formats.rocksdb.compression import CompressionType
from bkstore.formats.rocksdb.keys import TRAILER_BYTES
from bkstore.formats.rocksdb.table import footer as footers
from bkstore.formats.rocksdb.table.block import pack_block
from bkstore.formats.rocksdb.table.entries import encode_entries
from bkstore.formats.rocksdb.table.filter import FilterBuilder
from bkstore.formats.rocksdb.table.footer import BlockHandle, Footer, encode_handle
from bkstore.formats.rocksdb.table.index import encode_index, find_separator
from bkstore.formats.rocksdb.table.key_hash import UInt64Array
from bkstore.formats.rocksdb.table.row_blocks import (
    BlockShape,
    count_shared_bytes,
    encode_blocks,
    end_blocks,
)
from bkstore.ids import Int64Array

_FORMAT_VERSION = 5
_BATCH_ROWS = 1 << 15
_VALUE_BYTES = 8
_FILTER_NAME = b"fullfilter.rocksdb.BuiltinBloomFilter"
_CREATOR = b"bkstore"
_BASE_36 = string.digits + string.ascii_uppercase


@dataclass(frozen=True, slots=True)
class TableFileSettings:
    """How a table file is written; the defaults are those of a bookie's `locations` databases.
    `compression` is LZ4 or none; without `filter_bits` (per key) there is no filter."""

    shape: BlockShape = field(default_factory=BlockShape)
    compression: CompressionType = CompressionType.LZ4
    checksum_type: ChecksumType = ChecksumType.XXH32
    filter_bits: float | None = 10


class TableBuilder:
    """Makes a table file from rows in order: keys of `words` * 8 bytes, values of 8. `add` and
    `finish` return its bytes, one part after the other. Memory: 16 bytes a row for the filter, and
    what the calls get. Some 120 ns a row.

    >>> builder = TableBuilder(words=2)
    >>> data = builder.add(np.array([[5, 5], [7, 8]], np.uint64), np.array([1028, 1100]))
    >>> len(data), builder.finish()[-8:].hex(), builder.rows
    (0, 'f7cff485b741e288', 2)
    """

    def __init__(self, words: int, settings: TableFileSettings | None = None) -> None:
        """Begin a file of rows with keys of `words` 64-bit words and 8-byte values."""
        self.rows = 0
        self._settings = settings or TableFileSettings()
        self._words = words
        self._session = _make_session_identity()
        self._filter: FilterBuilder | None = None
        if self._settings.filter_bits is not None:
            self._filter = FilterBuilder(self._settings.filter_bits)
        # Rows that are in no block yet, of which the first one begins a block.
        self._pending_keys: UInt64Array = np.empty((words, 0), np.uint64)
        self._pending_values: Int64Array = np.empty(0, np.int64)
        self._written = 0  # bytes
        self._handles: list[BlockHandle] = []
        self._separators: list[bytes] = []
        self._last_key: bytes | None = None  # of the last block, until its separator is known

    def add(self, keys: UInt64Array, values: Int64Array) -> bytes:
        """Add rows, and return the next bytes of the file, which has the rows only in part: a block
        is written when it is full. `keys` is uint64[w, n], the big-endian words of the keys;
        `values` is int64[n]. Raises `InvalidArgument` unless keys ascend, also from call to call.
        """
        parts: list[bytes] = []
        for start in range(0, values.size, _BATCH_ROWS):
            chunk = slice(start, start + _BATCH_ROWS)
            if self._filter is not None:
                self._filter.add(keys[:, chunk])
            self._pending_keys = np.concatenate((self._pending_keys, keys[:, chunk]), axis=1)
            self._pending_values = np.concatenate((self._pending_values, values[chunk]))
            self.rows += values[chunk].size
            if self._pending_values.size >= _BATCH_ROWS:
                parts.append(self._write_blocks(is_end=False))
        return b"".join(parts)

    def _write_blocks(self, is_end: bool) -> bytes:
        """Return, as stored, the data blocks that the pending rows fill; with `is_end` also the
        last, partial one. The other rows stay pending."""
        keys, values = self._pending_keys, self._pending_values
        shape = self._settings.shape
        shared = count_shared_bytes(keys)
        ends = end_blocks(shared, self._words, shape)
        if is_end:
            ends = np.append(ends, values.size)
        if not ends.size:
            return b""
        buffer, content_ends = encode_blocks(keys, values, shared, ends, shape.restart_interval)
        # Compress each block. Its separator in the index depends on the first key of the next one,
        # so it is made when that begins.
        stored: list[bytes] = []
        content_start, row_start = 0, 0
        contents = buffer.data
        for content_end, row_end in zip(content_ends.tolist(), ends.tolist()):
            self._end_separator(_key_bytes(keys[:, row_start]))
            stored.append(self._pack(contents[content_start:content_end]))
            self._handles.append(self._last_handle)
            self._last_key = _key_bytes(keys[:, row_end - 1])
            content_start, row_start = content_end, row_end
        self._pending_keys = keys[:, row_start:].copy()
        self._pending_values = values[row_start:].copy()
        return b"".join(stored)

    def _end_separator(self, next_key: bytes) -> None:
        """Add the separator between the last block and the next, which begins with `next_key`."""
        if self._last_key is not None:
            self._separators.append(find_separator(self._last_key, next_key))

    def _pack(self, contents: bytes | memoryview, is_compressed: bool = True) -> bytes:
        """Return a block as stored; its handle is `_last_handle`."""
        settings = self._settings
        compression = settings.compression if is_compressed else CompressionType.NONE
        stored = pack_block(contents, compression, settings.checksum_type)
        self._last_handle = BlockHandle(self._written, len(stored) - footers.TRAILER_BYTES)
        self._written += len(stored)
        return stored

    def finish(self) -> bytes:
        """Return the last bytes of the file: the last data block, filter, index, properties,
        metaindex and footer. Raises `InvalidArgument` if it has no row, as RocksDB refuses such a
        file."""
        if not self.rows:
            raise InvalidArgument("a table file without rows cannot be written")
        parts = [self._write_blocks(is_end=True)]
        assert self._last_key is not None
        self._separators.append(self._last_key)
        data_bytes = self._written
        meta_blocks: list[tuple[bytes, bytes]] = []
        filter_bytes = 0
        if self._filter is not None:
            contents = self._filter.finish()
            filter_bytes = len(contents)
            parts.append(self._pack(contents, is_compressed=False))
            meta_blocks.append((_FILTER_NAME, encode_handle(self._last_handle)))
        # The index of data blocks, the properties, and the metaindex, which has the handles of
        # filter and properties.
        index_contents = encode_index(self._separators, self._handles)
        parts.append(self._pack(index_contents))
        index = self._last_handle
        properties = self._properties(data_bytes, filter_bytes, len(index_contents))
        properties_contents = encode_entries(properties, restart_interval=None)
        parts.append(self._pack(properties_contents, is_compressed=False))
        meta_blocks.append((b"rocksdb.properties", encode_handle(self._last_handle)))
        metaindex_contents = encode_entries(meta_blocks, restart_interval=1)
        parts.append(self._pack(metaindex_contents, is_compressed=False))
        checksum_type, metaindex = self._settings.checksum_type, self._last_handle
        footer = Footer(checksum_type, _FORMAT_VERSION, metaindex, index, base_checksum=0)
        return b"".join(parts) + footers.encode_footer(footer)

    def _properties(
        self, data_bytes: int, filter_bytes: int, index_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        """Return the properties that RocksDB writes into its files, as (name, stored value), sorted
        by name. The arguments are sizes in bytes; `index_bytes` is uncompressed."""
        key_bytes = 8 * self._words + TRAILER_BYTES
        numbers = {
            "column.family.id": 0x7FFF_FFFF,  # not known
            "creation.time": 0,
            "data.size": data_bytes,
            "deleted.keys": 0,
            "filter.size": filter_bytes,
            "fixed.key.length": 0,  # varying
            "format.version": _FORMAT_VERSION,
            "index.key.is.user.key": 1,
            "index.size": index_bytes + footers.TRAILER_BYTES,
            "index.value.is.delta.encoded": 1,
            "key.largest.seqno": 0,
            "merge.operands": 0,
            "num.data.blocks": len(self._handles),
            "num.entries": self.rows,
            "num.filter_entries": self.rows if self._filter is not None else 0,
            "num.range-deletions": 0,
            "oldest.key.time": 0,
            "original.file.number": 1,
            "raw.key.size": self.rows * key_bytes,
            "raw.value.size": self.rows * _VALUE_BYTES,
            "tail.start.offset": data_bytes,
        }
        values = {name: encode_varint(number) for name, number in numbers.items()}
        values |= _FIXED_PROPERTIES
        values["compression"] = _COMPRESSION_NAMES[self._settings.compression]
        values["creating.host.identity"] = socket.gethostname().encode()
        values["creating.session.identity"] = self._session
        if self._filter is not None:
            values["filter.policy"] = b"bloomfilter"
        return sorted((f"rocksdb.{name}".encode(), value) for name, value in values.items())


_COMPRESSION_NAMES = {
    CompressionType.NONE: b"NoCompression",
    CompressionType.LZ4: b"LZ4",
}

_FIXED_PROPERTIES = {
    "block.based.table.index.type": bytes(4),  # binary search
    "block.based.table.prefix.filtering": b"0",
    "block.based.table.whole.key.filtering": b"1",
    "comparator": b"leveldb.BytewiseComparator",
    "compression_options": b"window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; "
    b"zstd_max_train_bytes=0; enabled=0; max_dict_buffer_bytes=0; use_zstd_dict_trainer=1; ",
    "creating.db.identity": _CREATOR,
    # What makes a file one that can be ingested: its sequence number is given then.
    "external_sst_file.global_seqno": bytes(8),
    "external_sst_file.version": (2).to_bytes(4, "little"),
    "merge.operator": b"nullptr",
    "prefix.extractor.name": b"nullptr",
    "property.collectors": b"[]",
}


def _key_bytes(words: UInt64Array) -> bytes:
    return words.astype(">u8").tobytes()


def _make_session_identity() -> bytes:
    """Return a new session name in RocksDB's form. Each file gets its own: the unique id of a file,
    by which RocksDB caches its blocks, is made from it."""
    text = _base_36(secrets.randbelow(36**8), digits=8) + _base_36(secrets.randbits(62), digits=12)
    return text.encode()


def _base_36(number: int, digits: int) -> str:
    """Return a number in base 36, with leading zeros."""
    places = reversed(range(digits))
    return "".join(_BASE_36[number // 36**place % 36] for place in places)
