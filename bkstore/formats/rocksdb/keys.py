"""Internal keys: a user's key, then a trailer of 8 bytes, little-endian: the sequence number of the
write << 8 | its type. Rows are in the order of user keys, of one key newest first. Source:
`db/dbformat.h`."""

from __future__ import annotations

from enum import IntEnum

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.coding import read_uint

TRAILER_BYTES = 8
MAX_SEQUENCE = (1 << 56) - 1


class ValueType(IntEnum):
    """What a row does to its key; persisted in internal keys and write-ahead logs."""

    DELETION = 0
    VALUE = 1
    MERGE = 2
    SINGLE_DELETION = 7
    RANGE_DELETION = 15
    BLOB_INDEX = 17
    DELETION_WITH_TIMESTAMP = 20
    WIDE_COLUMN_ENTITY = 22


DELETIONS = (ValueType.DELETION, ValueType.SINGLE_DELETION)
READABLE_TYPES = (*DELETIONS, ValueType.VALUE)


def describe_type(code: int) -> str:
    """Return the name of a row's type, for messages.

    >>> describe_type(2), describe_type(99)
    ('MERGE', 'type 99')
    """
    return ValueType(code).name if code in set(ValueType) else f"type {code}"


def split_internal_key(key: bytes) -> tuple[bytes, int, int]:
    """Return (user key, sequence number, type) of an internal key: the key that a user wrote, with
    a trailer of 8 bytes that RocksDB appends. Raises `CorruptionError` if it is shorter than that.

    >>> split_internal_key(b"abc" + (7 << 8 | 1).to_bytes(8, "little"))
    (b'abc', 7, 1)
    """
    if len(key) < TRAILER_BYTES:
        raise CorruptionError(None, None, f"internal key of {len(key)} bytes has no trailer")
    trailer = read_uint(key, len(key) - TRAILER_BYTES, TRAILER_BYTES)
    return key[:-TRAILER_BYTES], trailer >> 8, trailer & 0xFF
