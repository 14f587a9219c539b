"""What a RocksDB MANIFEST says: which table files are live, which logs are still needed.

Only what proves that nothing is missing is read; opening the database is RocksDB's business.
The rules behind `check_complete`: RocksDB accepts a manifest that lost its end and a missing
write-ahead log in silence, and then answers with fewer rows. Source: `db/version_edit.cc`,
`VersionEdit::DecodeFrom`; `docs/formats/rocksdb.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import opened
from bkstore.index.rocks.log_framing import FramedLogReader, read_varint

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE = 1, 2, 3, 4
_COMPACT_CURSOR, _DELETED_FILE, _NEW_FILE, _PREVIOUS_LOG, _KEEP_LOGS = 5, 6, 7, 9, 10
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_FAMILY, _MAX_FAMILY, _ATOMIC_GROUP = 200, 203, 300
_SKIPPABLE = 1 << 13
_NUMBERS = {_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _KEEP_LOGS}
_PLAIN = {_FAMILY, _MAX_FAMILY, _ATOMIC_GROUP}
_TABLE_MAGICS = (0x88E241B785F4CFF7, 0xDB4775248B80FB57)  # block-based: now, and LevelDB's
_BATCH_HEADER = 12  # u64 number of the first write, u32 how many
_NAME = re.compile(r"(\d+)\.(sst|log)")


@dataclass
class Manifest:
    """The sum of a manifest's edits.

    `live` and `ever` hold numbers of table files. Logs from `log_number` on are still needed.
    `understood` is False where an unknown edit stopped the reading: then nothing is concluded.
    """

    path: Path
    live: set[int] = field(default_factory=set)
    ever: set[int] = field(default_factory=set)
    log_number: int = 0
    last_sequence: int = 0
    torn_at: int | None = None
    understood: bool = True


def read_manifest(path: Path) -> Manifest:
    """Return what the manifest at `path` says; `CorruptionError` names the damaged place."""
    manifest = Manifest(path)
    reader = FramedLogReader(path)
    for offset, record in reader.records():
        try:
            manifest.understood = manifest.understood and _apply(manifest, record)
        except CorruptionError as error:
            raise CorruptionError(path, offset, error.reason) from None
    manifest.torn_at = reader.torn_at
    return manifest


def _apply(manifest: Manifest, record: bytes) -> bool:
    """Add one edit; return False at a tag that cannot be read past."""
    at = 0
    while at < len(record):
        tag, at = read_varint(record, at)
        if tag in _NUMBERS:
            value, at = read_varint(record, at)
            if tag == _LOG_NUMBER:
                manifest.log_number = max(manifest.log_number, value)
            elif tag == _LAST_SEQUENCE:
                manifest.last_sequence = max(manifest.last_sequence, value)
        elif tag == _DELETED_FILE:
            _, at = read_varint(record, at)
            number, at = read_varint(record, at)
            manifest.live.discard(number)
        elif tag in (_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            at = _new_file(manifest, record, at, tag)
        elif tag in _PLAIN:
            _, at = read_varint(record, at)
        elif tag == _COMPARATOR or tag & _SKIPPABLE:
            at = _past_string(record, at)
        elif tag == _COMPACT_CURSOR:
            _, at = read_varint(record, at)
            at = _past_string(record, at)
        else:  # more column families, or an edit of a later RocksDB
            return False
    return True


def _past_string(record: bytes, at: int) -> int:
    length, at = read_varint(record, at)
    if at + length > len(record):
        raise CorruptionError(None, at, f"text of {length} bytes runs past its record")
    return at + length


def _new_file(manifest: Manifest, record: bytes, at: int, tag: int) -> int:
    """Add a table file; the layouts differ in what follows level, number, size and keys."""
    _, at = read_varint(record, at)
    number, at = read_varint(record, at)
    _, at = read_varint(record, at)
    if tag == _NEW_FILE_3:
        _, at = read_varint(record, at)
    at = _past_string(record, _past_string(record, at))
    if tag != _NEW_FILE:  # smallest and largest sequence
        _, at = read_varint(record, at)
        _, at = read_varint(record, at)
    while tag == _NEW_FILE_4:
        field_tag, at = read_varint(record, at)
        if field_tag == 1:
            break
        at = _past_string(record, at)
    manifest.live.add(number)
    manifest.ever.add(number)
    return at


def _numbered(directory: Path, suffix: str) -> dict[int, Path]:
    found = {}
    for path in directory.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and match[2] == suffix:
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def needed_logs(manifest: Manifest, directory: Path) -> dict[int, Path]:
    """Return the write-ahead logs whose rows are in no table file yet, by number."""
    logs = _numbered(directory, "log")
    return {number: path for number, path in logs.items() if number >= manifest.log_number}


def check_logs(manifest: Manifest, directory: Path) -> list[tuple[Path, int]]:
    """Check every needed write-ahead log in full; return (file, offset) of a torn tail.

    Raises `CorruptionError` for damage, for a torn record with rows in later logs, and where
    a log does not begin with the write that should come next: a log is missing.
    """
    torn: list[tuple[Path, int]] = []
    known = manifest.last_sequence
    for path in needed_logs(manifest, directory).values():
        reader, begun = FramedLogReader(path), False
        for offset, record in reader.records():
            if torn:
                raise CorruptionError(*torn[-1], f"ends inside a record, but {path.name} goes on")
            known = _next_write(path, offset, record, known, begun or not manifest.understood)
            begun = True
        if reader.torn_at is not None:
            torn.append((path, reader.torn_at))
    return torn


def _next_write(path: Path, offset: int, record: bytes, known: int, begun: bool) -> int:
    """Return the number of the last write in a batch, the last one before it being `known`."""
    if len(record) < _BATCH_HEADER:
        raise CorruptionError(path, offset, f"write batch of {len(record)} bytes")
    sequence = int.from_bytes(record[:8], "little")
    if not begun and sequence > known + 1:
        raise CorruptionError(
            path,
            offset,
            f"begins with write {sequence}, the last known one is {known}: a write-ahead log "
            "before it, or the end of the manifest, is missing",
        )
    return max(known, sequence + int.from_bytes(record[8:12], "little") - 1)


def check_complete(manifest: Manifest, directory: Path) -> list[Path]:
    """Return table files that the manifest does not name, where a crash explains them.

    Raises `CorruptionError` where a named file is missing, and where unnamed ones say that
    the manifest lost its end: RocksDB would open it and answer with fewer rows.
    """
    if not manifest.understood:
        return []
    tables = _numbered(directory, "sst")
    lost = sorted(manifest.live - set(tables))
    if lost:
        reason = f"missing: {manifest.path.name} names this table file"
        raise CorruptionError(directory / f"{lost[0]:06d}.sst", None, reason)
    unnamed = {number: tables[number] for number in tables if number not in manifest.ever}
    if _log_was_dropped(manifest, directory):
        for number, path in unnamed.items():
            # The output of a flush is numbered above the log that its rows were in.
            if number >= manifest.log_number and _finished(path):
                at = manifest.torn_at
                at = manifest.path.stat().st_size if at is None else at
                reason = f"the end is missing: {path.name} is here, but no record names it"
                raise CorruptionError(directory / manifest.path.name, at, reason)
    return list(unnamed.values())


def _log_was_dropped(manifest: Manifest, directory: Path) -> bool:
    """Whether the logs that this manifest started with are gone: a flush made them needless.

    While one of them is here, its rows are read from it, and tables that no record names are
    what a killed flush or compaction left.
    """
    own = int(manifest.path.name.removeprefix("MANIFEST-"))
    logs = needed_logs(manifest, directory)
    return not any(number == manifest.log_number or number < own for number in logs)


def _finished(table: Path) -> bool:
    """Whether a table file has its footer."""
    with opened(table) as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        return int.from_bytes(file.read(8), "little") in _TABLE_MAGICS
