"""The properties of a table file, and what in them this package cannot read. Source:
`table/meta_blocks.cc`, `include/rocksdb/table_properties.h`, `GetGlobalSequenceNumber` of
`table/block_based/block_based_table_reader.cc`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.coding import read_uint, read_varint
from bkstore.formats.rocksdb.keys import MAX_SEQUENCE
from bkstore.formats.rocksdb.table.entries import block_entries

_BYTEWISE = b"leveldb.BytewiseComparator"
_EXTERNAL_VERSION = "rocksdb.external_sst_file.version"
GLOBAL_SEQUENCE = "rocksdb.external_sst_file.global_seqno"
_INDEX_TYPE = "rocksdb.block.based.table.index.type"


class IndexType(IntEnum):
    """How a table file's index is built; persisted in its properties."""

    BINARY_SEARCH = 0
    HASH_SEARCH = 1
    TWO_LEVEL = 2
    WITH_FIRST_KEYS = 3


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties that reading a table file needs; `values` has all of them, by name, as stored.
    `entries` counts all rows, with `deletions` (tombstones of a key or a range) and
    `range_deletions` (of a range only); `key_bytes` and `value_bytes` are their sizes before
    compression, with 8 bytes more a key. `external_version` is 0 for a file that RocksDB wrote
    itself; `written_sequence` is the sequence number that an ingestion wrote into the file, or 0.
    """

    values: dict[str, bytes]
    entries: int
    deletions: int
    range_deletions: int
    data_blocks: int
    key_bytes: int
    value_bytes: int
    index_type: IndexType
    has_user_keys: bool
    has_index_deltas: bool
    external_version: int
    written_sequence: int

    def number(self, name: str) -> int:
        """Return another property, a varint, by its name; 0 if it is not there."""
        return _number(self.values, name)


def decode_properties(contents: bytes) -> TableProperties:
    """Return the properties in a properties block. Raises `CorruptionError` if it is malformed, and
    `UnsupportedLayout` for keys in another order than a bookie's, merges, and timestamps."""
    values: dict[str, bytes] = {}
    last_name = b""
    for entry in block_entries(contents):
        if entry.key <= last_name:
            raise CorruptionError(None, None, "properties are out of order")
        last_name = entry.key
        values[entry.key.decode("utf-8", "replace")] = entry.value
    _refuse_unsupported(values)
    # Files that were made outside of the database and ingested have these two.
    version = read_uint(values.get(_EXTERNAL_VERSION, bytes(4)), 0, 4)
    written_sequence = read_uint(values.get(GLOBAL_SEQUENCE, bytes(8)), 0, 8)
    if version > 2 or written_sequence > MAX_SEQUENCE or (written_sequence and version != 2):
        reason = f"external table of version {version} with sequence number {written_sequence}"
        raise CorruptionError(None, None, reason)
    return TableProperties(
        values=values,
        entries=_number(values, "rocksdb.num.entries"),
        deletions=_number(values, "rocksdb.deleted.keys"),
        range_deletions=_number(values, "rocksdb.num.range-deletions"),
        data_blocks=_number(values, "rocksdb.num.data.blocks"),
        key_bytes=_number(values, "rocksdb.raw.key.size"),
        value_bytes=_number(values, "rocksdb.raw.value.size"),
        index_type=_index_type(values),
        has_user_keys=_number(values, "rocksdb.index.key.is.user.key") != 0,
        has_index_deltas=_number(values, "rocksdb.index.value.is.delta.encoded") != 0,
        external_version=version,
        written_sequence=written_sequence,
    )


def find_global_sequence(contents: bytes) -> int | None:
    """Return the offset of the sequence number that an ingestion may write into the properties
    block, None if there is none. The block's checksum is that of zeros there."""
    for entry in block_entries(contents):
        if entry.key == GLOBAL_SEQUENCE.encode() and len(entry.value) == 8:
            return entry.value_offset
    return None


def _number(values: dict[str, bytes], name: str) -> int:
    """Return a number among the properties, 0 if it is not there."""
    return read_varint(values[name], 0)[0] if name in values else 0


def _index_type(values: dict[str, bytes]) -> IndexType:
    """Return the type of the table's index; raises `UnsupportedLayout` for one not read here."""
    code = read_uint(values.get(_INDEX_TYPE, bytes(4)), 0, 4)
    try:
        return IndexType(code)
    except ValueError:
        raise UnsupportedLayout(f"table file with index type {code} is not supported") from None


def _refuse_unsupported(values: dict[str, bytes]) -> None:
    """Raise `UnsupportedLayout` for features of RocksDB that no bookie uses and with which rows
    would have to be read differently."""
    comparator = values.get("rocksdb.comparator", _BYTEWISE)
    if comparator != _BYTEWISE:
        order = comparator.decode("utf-8", "replace")
        raise UnsupportedLayout(f"table file with comparator {order!r} is not supported")
    if _number(values, "rocksdb.merge.operands"):
        raise UnsupportedLayout("table file with merge operands is not supported")
    if "rocksdb.timestamp_min" in values or "rocksdb.timestamp_max" in values:
        raise UnsupportedLayout("table file with user-defined timestamps is not supported")
    if _number(values, "rocksdb.udi.is.primary.index"):
        raise UnsupportedLayout("table file with a user-defined index is not supported")
