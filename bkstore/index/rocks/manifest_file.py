"""The contents of a RocksDB MANIFEST: the live table files, and the logs still needed. Reads only
what proves that no file is missing: RocksDB silently accepts a truncated manifest and a missing
write-ahead log, and then returns fewer rows. Source: `db/version_edit.cc`,
`VersionEdit::DecodeFrom`; `docs/formats/rocksdb.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import open_for_reading
from bkstore.formats.rocksdb.coding import read_varint
from bkstore.index.rocks.log_framing import FramedLogReader

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE = 1, 2, 3, 4
_COMPACT_CURSOR, _DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG, _KEEP_LOGS = 5, 6, 7, 9, 10
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_COLUMN_FAMILY, _MAX_COLUMN_FAMILY, _ATOMIC_GROUP = 200, 203, 300
_SKIPPABLE = 1 << 13
_LAST_CUSTOM_FIELD = 1
_NUMBERS = {_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _KEEP_LOGS}
_SKIPPED_NUMBERS = {_COLUMN_FAMILY, _MAX_COLUMN_FAMILY, _ATOMIC_GROUP}
_TABLE_MAGICS = (0x88E241B785F4CFF7, 0xDB4775248B80FB57)  # block-based: now, and LevelDB's
_BATCH_HEADER_BYTES = 12  # u64 sequence number of the first write, u32 number of writes
_NAME = re.compile(r"(\d+)\.(sst|log)")


@dataclass
class Manifest:
    """The sum of a manifest's edits: `live_tables` and `all_tables` have the numbers of table files
    that are or ever were in use; logs from `log_number` on are still needed. `is_understood` is
    False if an unknown edit stopped the parsing: then nothing is reported as missing."""

    path: Path
    live_tables: set[int] = field(default_factory=set)
    all_tables: set[int] = field(default_factory=set)
    log_number: int = 0
    last_sequence: int = 0
    torn_offset: int | None = None
    is_understood: bool = True


def read_manifest(path: Path) -> Manifest:
    """Return the sum of the edits in a manifest; `CorruptionError` has the offset of damage. After
    an edit that is not understood none is applied, but the framing is checked to the end."""
    manifest = Manifest(path)
    reader = FramedLogReader(path)
    for offset, record in reader.records():
        try:
            if manifest.is_understood:
                manifest.is_understood = _apply_edit(manifest, record)
        except CorruptionError as error:
            raise CorruptionError(path, offset, error.reason) from None
    manifest.torn_offset = reader.torn_offset
    return manifest


def _apply_edit(manifest: Manifest, record: bytes) -> bool:
    """Apply one edit, a sequence of tags and their fields; return False, with the fields before it
    applied, at a tag whose fields have no known length."""
    position = 0
    while position < len(record):
        tag, position = read_varint(record, position)
        if tag in _NUMBERS:
            value, position = read_varint(record, position)
            if tag == _LOG_NUMBER:
                manifest.log_number = max(manifest.log_number, value)
            elif tag == _LAST_SEQUENCE:
                manifest.last_sequence = max(manifest.last_sequence, value)
        elif tag == _DELETED_FILE:
            _level, position = read_varint(record, position)
            file_number, position = read_varint(record, position)
            manifest.live_tables.discard(file_number)
        elif tag in (_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            position = _add_new_file(manifest, record, position, tag)
        elif tag in _SKIPPED_NUMBERS:
            _, position = read_varint(record, position)
        elif tag == _COMPARATOR or tag & _SKIPPABLE:
            position = _skip_string(record, position)
        elif tag == _COMPACT_CURSOR:
            _level, position = read_varint(record, position)
            position = _skip_string(record, position)
        else:  # more column families, or an edit of a later RocksDB
            return False
    return True


def _skip_string(record: bytes, position: int) -> int:
    """Return the offset after a length-prefixed string."""
    length, position = read_varint(record, position)
    if position + length > len(record):
        raise CorruptionError(None, position, f"text of {length} bytes runs past its record")
    return position + length


def _add_new_file(manifest: Manifest, record: bytes, position: int, tag: int) -> int:
    """Add a table file; return the offset after it. Versions differ in what follows the keys."""
    _level, position = read_varint(record, position)
    file_number, position = read_varint(record, position)
    _file_size, position = read_varint(record, position)
    if tag == _NEW_FILE_3:
        _path_id, position = read_varint(record, position)
    smallest_key_end = _skip_string(record, position)
    position = _skip_string(record, smallest_key_end)  # the largest key
    if tag != _NEW_FILE:
        _smallest_sequence, position = read_varint(record, position)
        _largest_sequence, position = read_varint(record, position)
    while tag == _NEW_FILE_4:  # custom fields, each a tag and a string
        field_tag, position = read_varint(record, position)
        if field_tag == _LAST_CUSTOM_FIELD:
            break
        position = _skip_string(record, position)
    manifest.live_tables.add(file_number)
    manifest.all_tables.add(file_number)
    return position


def _numbered_files(directory: Path, suffix: str) -> dict[int, Path]:
    """Return the files named by a number and ``.suffix``, in the order of their numbers."""
    path_of_number = {}
    for path in directory.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and match[2] == suffix:
            path_of_number[int(match[1])] = path
    return dict(sorted(path_of_number.items()))


def list_needed_logs(manifest: Manifest, directory: Path) -> dict[int, Path]:
    """Return the write-ahead logs whose rows are in no table file yet, by number."""
    logs = _numbered_files(directory, "log")
    return {number: path for number, path in logs.items() if number >= manifest.log_number}


def check_logs(manifest: Manifest, directory: Path) -> list[tuple[Path, int]]:
    """Check every needed write-ahead log in full; return (file, offset) of each torn tail. Raises
    `CorruptionError` for damage, for a torn record with rows in later logs, and for a log that does
    not begin with the next write: one before it is missing."""
    torn_tails: list[tuple[Path, int]] = []
    last_write = manifest.last_sequence
    for path in list_needed_logs(manifest, directory).values():
        reader, has_begun = FramedLogReader(path), False
        for offset, record in reader.records():
            if torn_tails:
                reason = f"ends inside a record, but {path.name} follows"
                raise CorruptionError(*torn_tails[-1], reason)
            # Only the first write of a log shows that a log before it is missing.
            may_skip = has_begun or not manifest.is_understood
            last_write = _last_write_of(path, offset, record, last_write, may_skip)
            has_begun = True
        if reader.torn_offset is not None:
            torn_tails.append((path, reader.torn_offset))
    return torn_tails


def _last_write_of(path: Path, offset: int, record: bytes, last_write: int, may_skip: bool) -> int:
    """Return the sequence number of the last write so far, `last_write` being that before;
    `CorruptionError` for a gap between them, unless `may_skip`."""
    if len(record) < _BATCH_HEADER_BYTES:
        raise CorruptionError(path, offset, f"write batch of {len(record)} bytes")
    first_write = int.from_bytes(record[:8], "little")
    write_count = int.from_bytes(record[8:12], "little")
    if not may_skip and first_write > last_write + 1:
        reason = f"begins with write {first_write}, the last known one is {last_write}"
        missing = "an earlier write-ahead log or the manifest's end is missing"
        raise CorruptionError(path, offset, f"{reason}: {missing}")
    return max(last_write, first_write + write_count - 1)


def check_tables(manifest: Manifest, directory: Path) -> list[Path]:
    """Return the table files that the manifest does not name, if a crash explains them. Raises
    `CorruptionError` if a named one is missing, or unnamed ones show that the manifest was cut."""
    if not manifest.is_understood:
        return []
    tables = _numbered_files(directory, "sst")
    missing_tables = sorted(manifest.live_tables - set(tables))
    if missing_tables:
        reason = f"missing: {manifest.path.name} lists this table file"
        raise CorruptionError(directory / f"{missing_tables[0]:06d}.sst", None, reason)
    unnamed = {n: table for n, table in tables.items() if n not in manifest.all_tables}
    if _first_logs_are_gone(manifest, directory):
        for number, path in unnamed.items():
            # A flush gives its table a higher number than the log that had the rows. A table
            # without a footer was never finished, so no log was removed for it.
            if number >= manifest.log_number and _has_footer(path):
                end_offset = manifest.torn_offset
                if end_offset is None:
                    end_offset = manifest.path.stat().st_size
                reason = f"the end is missing: {path.name} is here, but no record lists it"
                raise CorruptionError(directory / manifest.path.name, end_offset, reason)
    return list(unnamed.values())


def _first_logs_are_gone(manifest: Manifest, directory: Path) -> bool:
    """Return whether a flush removed the logs that this manifest started with. While one exists,
    its rows are read from it, and unnamed tables are leftovers of a killed flush or compaction."""
    manifest_number = int(manifest.path.name.removeprefix("MANIFEST-"))
    logs = list_needed_logs(manifest, directory)
    return manifest.log_number not in logs and all(number >= manifest_number for number in logs)


def _has_footer(table: Path) -> bool:
    with open_for_reading(table) as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        return int.from_bytes(file.read(8), "little") in _TABLE_MAGICS
