"""What a MANIFEST stores for one table file: level, number, size, ranges of keys and sequences.

    new file 4 (tag 103)    varint level, number, size; smallest and largest internal key, each a
                            varint length and the bytes; varint smallest and largest sequence;
                            then fields, each a varint tag, a varint length and the bytes;
                            varint 1 ends them
    new file (7)            without sequences and fields
    new file 2 (100)        without fields
    new file 3 (102)        as 2, with a varint path after the size

A field that is not known here is skipped, unless bit 0x40 of its tag says that it may not be.
Source: `db/version_edit.cc` of RocksDB, `DecodeNewFile4From`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.coding import encode_varint, read_string, read_varint
from bkstore.formats.rocksdb.keys import MAX_SEQUENCE, TRAILER_BYTES, ValueType

NEW_FILE, NEW_FILE_2, NEW_FILE_3, NEW_FILE_4 = 7, 100, 102, 103
MAX_LEVEL = 1 << 10
_UNKNOWN_CHECKSUM = "Unknown"  # the name of no checksum function

# Tags of fields.
_END, _NEEDS_COMPACTION, _MIN_LOG_NUMBER, _OLDEST_BLOB_FILE = 1, 2, 3, 4
_OLDEST_ANCESTOR_TIME, _CREATION_TIME, _CHECKSUM, _CHECKSUM_FUNCTION = 5, 6, 7, 8
_TEMPERATURE, _MIN_TIMESTAMP, _MAX_TIMESTAMP, _UNIQUE_ID = 9, 10, 11, 12
_EPOCH_NUMBER, _RANGE_DELETION_BYTES, _TAIL_BYTES, _TIMESTAMPS_PERSISTED = 13, 14, 15, 16
_PATH_ID = 65
_NOT_SKIPPABLE = 1 << 6

_VARINT_FIELDS = {
    _OLDEST_ANCESTOR_TIME: "oldest_ancestor_time",
    _CREATION_TIME: "creation_time",
    _EPOCH_NUMBER: "epoch_number",
    _RANGE_DELETION_BYTES: "range_deletion_bytes",
    _TAIL_BYTES: "tail_bytes",
}
_BYTE_FIELDS = {_CHECKSUM: "checksum", _UNIQUE_ID: "unique_id"}


class TableFileMetadata(NamedTuple):
    """One live table file. Keys are internal keys: the user key and eight bytes, the little-endian
    u64 ``sequence << 8 | type``. Times are Unix seconds. 0, b"" and "" mean that it is not stored.

    An ingested file has sequence 0 in its own keys: all its rows are of `largest_sequence`."""

    level: int
    number: int
    size: int
    smallest: bytes
    largest: bytes
    smallest_sequence: int = 0
    largest_sequence: int = 0
    epoch_number: int = 0
    creation_time: int = 0
    oldest_ancestor_time: int = 0
    checksum: bytes = b""
    checksum_function: str = ""
    unique_id: bytes = b""
    tail_bytes: int = 0
    """Bytes from the first byte after the data blocks to the end of the file."""

    range_deletion_bytes: int = 0
    """Bytes of other files that its range deletes cover, as RocksDB estimated them."""

    needs_compaction: bool = False

    @property
    def file_name(self) -> str:
        """The file's name in the database's directory.

        >>> TableFileMetadata(0, 12, 1000, bytes(8), bytes(8)).file_name
        '000012.sst'
        """
        return f"{self.number:06d}.sst"

    @property
    def smallest_key(self) -> bytes:
        """The user key of `smallest`."""
        return self.smallest[:-TRAILER_BYTES]

    @property
    def largest_key(self) -> bytes:
        """The user key of `largest`. If a range delete ends the file, it is exclusive there, which
        `has_exclusive_end` tells."""
        return self.largest[:-TRAILER_BYTES]

    @property
    def has_exclusive_end(self) -> bool:
        """Whether no row has the largest key: it is the end of a range delete."""
        return self.largest[-TRAILER_BYTES:] == _RANGE_END_TRAILER

    @property
    def end_key(self) -> bytes:
        """The exclusive end of the file's keys: `largest_key` if that is an exclusive end itself
        (of a range delete), else the next possible key after it.

        >>> TableFileMetadata(0, 12, 1000, b"a" + bytes(8), b"c" + bytes(8)).end_key
        b'c\\x00'
        """
        return self.largest_key + (b"" if self.has_exclusive_end else b"\0")


_RANGE_END_TRAILER = (MAX_SEQUENCE << 8 | ValueType.RANGE_DELETION).to_bytes(8, "little")


def read_table_file(
    record: bytes, position: int, tag: int
) -> tuple[TableFileMetadata, int | None, int]:
    """Return (table file, the number of the first log to keep or None, offset after it).

    The record of a manifest adds a table file by one of several tags, older ones with fewer fields;
    `position` is the offset after the tag. Raises `CorruptionError` with an offset in the record,
    and `UnsupportedLayout` for blob files, user-defined timestamps, files in another directory, and
    unknown fields that may not be skipped.
    """
    level, position = read_varint(record, position)
    if level > MAX_LEVEL:
        raise CorruptionError(None, position, f"table file of level {level}")
    number, position = read_varint(record, position)
    size, position = read_varint(record, position)
    path_id = 0
    if tag == NEW_FILE_3:
        path_id, position = read_varint(record, position)
    smallest, position = _read_internal_key(record, position)
    largest, position = _read_internal_key(record, position)
    values: dict[str, Any] = {}
    if tag != NEW_FILE:
        values["smallest_sequence"], position = read_varint(record, position)
        values["largest_sequence"], position = read_varint(record, position)
    # The newest tag has optional fields, each with a tag of its own, up to an end mark.
    min_log_number = None
    while tag == NEW_FILE_4:
        field_tag, position = read_varint(record, position)
        if field_tag == _END:
            break
        content, position = read_string(record, position)
        field_offset = position - len(content)
        if field_tag == _MIN_LOG_NUMBER:
            min_log_number = _fixed64(content, field_offset)
        elif field_tag == _PATH_ID:
            path_id = int.from_bytes(content, "little")
        else:
            _read_field(values, field_tag, content, field_offset)
    if path_id:
        raise UnsupportedLayout(f"table file {number:06d}.sst in another directory (db_paths)")
    return (
        TableFileMetadata(level, number, size, smallest, largest, **values),
        min_log_number,
        position,
    )


def _read_internal_key(record: bytes, position: int) -> tuple[bytes, int]:
    key, end = read_string(record, position)
    if len(key) < TRAILER_BYTES:
        raise CorruptionError(None, position, f"internal key of {len(key)} bytes")
    return key, end


def _read_field(values: dict[str, Any], tag: int, content: bytes, offset: int) -> None:
    """Add an optional field of a table file to `values`, by the name of the field of
    `TableFileMetadata`. Fields that are not needed are skipped; raises `UnsupportedLayout` for
    those that may not be."""
    if tag in _VARINT_FIELDS:
        try:
            values[_VARINT_FIELDS[tag]], _ = read_varint(content, 0)
        except CorruptionError as error:
            raise CorruptionError(None, offset, error.reason) from None
    elif tag in _BYTE_FIELDS:
        values[_BYTE_FIELDS[tag]] = content
    elif tag == _CHECKSUM_FUNCTION:
        function = content.decode("utf-8", "replace")
        values["checksum_function"] = "" if function == _UNKNOWN_CHECKSUM else function
    elif tag == _NEEDS_COMPACTION:
        values["needs_compaction"] = content == b"\1"
    elif tag == _OLDEST_BLOB_FILE:
        raise UnsupportedLayout("blob files")
    elif tag in (_MIN_TIMESTAMP, _MAX_TIMESTAMP, _TIMESTAMPS_PERSISTED):
        raise UnsupportedLayout("user-defined timestamps")
    elif tag & _NOT_SKIPPABLE:
        raise UnsupportedLayout(f"field {tag} of a table file")


def _fixed64(content: bytes, offset: int) -> int:
    if len(content) != 8:
        raise CorruptionError(None, offset, f"log number of {len(content)} bytes")
    return int.from_bytes(content, "little")


def encode_table_file(table: TableFileMetadata) -> bytes:
    """Return the table file as RocksDB 9.8 writes it into a MANIFEST, with its tag (103).

    >>> encoded = encode_table_file(TableFileMetadata(0, 12, 1000, bytes(8), bytes(8)))
    >>> read_table_file(encoded, 1, NEW_FILE_4)[0].file_name
    '000012.sst'
    """
    numbers = b"".join(map(encode_varint, (NEW_FILE_4, table.level, table.number, table.size)))
    keys = _with_length(table.smallest) + _with_length(table.largest)
    sequences = encode_varint(table.smallest_sequence) + encode_varint(table.largest_sequence)
    # RocksDB writes the first fields always, in this order, and the others if they have a value.
    fields = [
        (_OLDEST_ANCESTOR_TIME, encode_varint(table.oldest_ancestor_time)),
        (_CREATION_TIME, encode_varint(table.creation_time)),
        (_EPOCH_NUMBER, encode_varint(table.epoch_number)),
        (_CHECKSUM, table.checksum),
        (_CHECKSUM_FUNCTION, (table.checksum_function or _UNKNOWN_CHECKSUM).encode()),
    ]
    if table.needs_compaction:
        fields.append((_NEEDS_COMPACTION, b"\1"))
    if table.unique_id:
        fields.append((_UNIQUE_ID, table.unique_id))
    if table.range_deletion_bytes:
        fields.append((_RANGE_DELETION_BYTES, encode_varint(table.range_deletion_bytes)))
    if table.tail_bytes:
        fields.append((_TAIL_BYTES, encode_varint(table.tail_bytes)))
    encoded_fields = b"".join(encode_varint(tag) + _with_length(text) for tag, text in fields)
    return numbers + keys + sequences + encoded_fields + encode_varint(_END)


def _with_length(content: bytes) -> bytes:
    return encode_varint(len(content)) + content
