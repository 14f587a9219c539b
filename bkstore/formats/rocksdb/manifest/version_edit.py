"""Version edits, the records of a MANIFEST: each is a change of the set of live files.

    tag     varint; then by tag:
    1       comparator's name                   2, 3, 4, 9, 10   varint: number of the first log
    5       varint level, key: skipped                           needed, next file number, last
    6       varint level, file number: removed                   sequence, previous log, first log
    7, 100, 102, 103    a table file added                       to keep
    200, 203, 300       varint: column family, highest column family, edits left of a group
    201, 202            a column family added, by name, or dropped
    8193                identity of the database
    8199, 8200          a text that begins with a varint: the number of a log that is tracked from
                        now on, or below which none is (track_and_verify_wals_in_manifest)
    other tags with bit 0x2000: a text, skipped

Texts are a varint length and the bytes. Other column families than the default one, blob files and
unknown tags are refused by name. Source: `VersionEdit::DecodeFrom` in `db/version_edit.cc`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bkstore.errors import UnsupportedLayout
from bkstore.formats.rocksdb.coding import encode_varint, read_string, read_varint
from bkstore.formats.rocksdb.manifest.table_file import (
    NEW_FILE,
    NEW_FILE_2,
    NEW_FILE_3,
    NEW_FILE_4,
    TableFileMetadata,
    encode_table_file,
    read_table_file,
)

BYTEWISE_COMPARATOR = "leveldb.BytewiseComparator"
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR = 1, 2, 3, 4, 5
_DELETED_FILE, _PREVIOUS_LOG, _MIN_LOG_NUMBER = 6, 9, 10
_COLUMN_FAMILY, _ADD_FAMILY, _DROP_FAMILY, _MAX_FAMILY = 200, 201, 202, 203
_ATOMIC_GROUP, _BLOB_FILE, _BLOB_GARBAGE = 300, 400, 401
_SKIPPABLE = 1 << 13
_IDENTITY, _FULL_HISTORY = _SKIPPABLE + 1, _SKIPPABLE + 6
_TRACKED_LOG, _UNTRACKED_LOGS = _SKIPPABLE + 7, _SKIPPABLE + 8
_NEW_FILES = frozenset({NEW_FILE, NEW_FILE_2, NEW_FILE_3, NEW_FILE_4})
_NUMBERS = {
    _LOG_NUMBER: "log_number",
    _NEXT_FILE: "next_file_number",
    _LAST_SEQUENCE: "last_sequence",
    _PREVIOUS_LOG: "previous_log_number",
    _MIN_LOG_NUMBER: "min_log_number",
    _MAX_FAMILY: "max_column_family",
    _ATOMIC_GROUP: "edits_left_in_group",
}


class VersionEdit(NamedTuple):
    """One edit. A number that it does not have is None."""

    added: tuple[TableFileMetadata, ...] = ()
    removed: tuple[tuple[int, int], ...] = ()
    """(level, number) of table files that are no longer live."""

    comparator: str | None = None
    identity: str | None = None
    log_number: int | None = None
    previous_log_number: int | None = None
    next_file_number: int | None = None
    last_sequence: int | None = None
    min_log_number: int | None = None
    max_column_family: int | None = None
    edits_left_in_group: int | None = None
    tracked_log: int | None = None
    """Number of a write-ahead log that the manifest tracks from here on."""

    untracked_before: int | None = None
    """Logs with lower numbers are not tracked any more."""


def decode_edit(record: bytes) -> VersionEdit:
    """Return the edit in a record of a manifest: a sequence of fields, each after its tag.

    Raises `CorruptionError` with an offset in the record if it is cut; `UnsupportedLayout`, naming
    the feature, for one that no bookie uses or a tag that may not be skipped.

    >>> decode_edit(bytes.fromhex("0208 0900 030a 0432"))._asdict()["last_sequence"]
    50
    """
    values: dict[str, Any] = {}
    added: list[TableFileMetadata] = []
    removed: list[tuple[int, int]] = []
    position = 0
    while position < len(record):
        tag_offset = position
        tag, position = read_varint(record, position)
        if tag in _NUMBERS:
            values[_NUMBERS[tag]], position = read_varint(record, position)
        elif tag == _DELETED_FILE:
            level, position = read_varint(record, position)
            number, position = read_varint(record, position)
            removed.append((level, number))
        elif tag in _NEW_FILES:
            table, min_log_number, position = read_table_file(record, position, tag)
            added.append(table)
            if min_log_number is not None:
                values["min_log_number"] = min_log_number
        elif tag == _COMPACT_CURSOR:
            _level, position = read_varint(record, position)
            _key, position = read_string(record, position)
        elif tag == _COMPARATOR or tag & _SKIPPABLE:
            text, position = read_string(record, position)
            _take_text(values, tag, text)
        else:
            position = _check_family(record, position, tag, tag_offset)
    return VersionEdit(tuple(added), tuple(removed), **values)


def _take_text(values: dict[str, Any], tag: int, text: bytes) -> None:
    """Add the text of a field to `values` if it is needed. Raises `UnsupportedLayout` for a field
    that changes the meaning of keys: another order, or timestamps."""
    if tag == _COMPARATOR:
        values["comparator"] = text.decode("utf-8", "replace")
        if values["comparator"] != BYTEWISE_COMPARATOR:
            raise UnsupportedLayout(
                f"keys in the order of comparator {values['comparator'][:80]!r}"
            )
    elif tag == _IDENTITY:
        values["identity"] = text.decode("utf-8", "replace")
    elif tag == _TRACKED_LOG:
        values["tracked_log"], _ = read_varint(text, 0)
    elif tag == _UNTRACKED_LOGS:
        values["untracked_before"], _ = read_varint(text, 0)
    elif tag == _FULL_HISTORY and text:
        raise UnsupportedLayout("user-defined timestamps")


def _check_family(record: bytes, position: int, tag: int, tag_offset: int) -> int:
    """Return the offset after a field that assigns the edit to the default column family (number
    0), which is the only one a bookie has. Raises `UnsupportedLayout` for any other field."""
    if tag == _COLUMN_FAMILY:
        column_family, position = read_varint(record, position)
        if not column_family:
            return position
        # An edit that adds a column family has the name behind the number.
        following_tag, name_offset = read_varint(record, position)
        if following_tag == _ADD_FAMILY:
            family_name = read_string(record, name_offset)[0].decode("utf-8", "replace")
            raise UnsupportedLayout(f"column family {family_name[:80]!r}")
        raise UnsupportedLayout(f"column family {column_family}")
    if tag in (_ADD_FAMILY, _DROP_FAMILY):
        raise UnsupportedLayout("a column family besides the default one")
    if tag in (_BLOB_FILE, _BLOB_GARBAGE):
        raise UnsupportedLayout("blob files")
    raise UnsupportedLayout(f"tag {tag} at offset {tag_offset} of a manifest's record")


def encode_edit(edit: VersionEdit) -> bytes:
    """Return the record of an edit, in RocksDB's order of tags.

    >>> encode_edit(VersionEdit(log_number=8, last_sequence=50)).hex()
    '02080432'
    """
    parts: list[bytes] = []
    if edit.identity is not None:
        parts += [encode_varint(_IDENTITY), _with_length(edit.identity.encode())]
    if edit.comparator is not None:
        parts += [encode_varint(_COMPARATOR), _with_length(edit.comparator.encode())]
    for tag in (
        _LOG_NUMBER,
        _PREVIOUS_LOG,
        _NEXT_FILE,
        _MIN_LOG_NUMBER,
        _LAST_SEQUENCE,
        _MAX_FAMILY,
    ):
        number = getattr(edit, _NUMBERS[tag])
        if number is not None:
            parts += [encode_varint(tag), encode_varint(number)]
    for level, number in edit.removed:
        parts += map(encode_varint, (_DELETED_FILE, level, number))
    parts += map(encode_table_file, edit.added)
    if edit.edits_left_in_group is not None:
        parts += map(encode_varint, (_ATOMIC_GROUP, edit.edits_left_in_group))
    return b"".join(parts)


def _with_length(content: bytes) -> bytes:
    return encode_varint(len(content)) + content
