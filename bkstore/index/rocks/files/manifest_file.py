"""A database's MANIFEST on disk, and whether the files that it names are here: live table files,
and the logs still needed. RocksDB silently accepts a truncated manifest and a missing write-ahead
log, and then returns fewer rows, so both are found here. Source: `docs/formats/rocksdb.md`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.opening import open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.rocksdb.log.write_batch import read_batch_header
from bkstore.formats.rocksdb.manifest.version import Version
from bkstore.formats.rocksdb.manifest.version_edit import decode_edit
from bkstore.index.rocks.files.log_file import FramedLogReader

_TABLE_MAGICS = (0x88E241B785F4CFF7, 0xDB4775248B80FB57)  # block-based: now, and LevelDB's
_NAME = re.compile(r"(\d+)\.(sst|log)")


class TornTail(NamedTuple):
    """The end of a file that a crash tore: its offset, and what it is, for findings."""

    path: Path
    offset: int
    detail: str


@dataclass
class Manifest:
    """A manifest's file and the version that its edits add up to. `unsupported` names the first
    thing that is not supported, None if there is none: from there on no edit was applied, so
    nothing is reported as missing."""

    path: Path
    version: Version = field(default_factory=Version)
    torn_offset: int | None = None
    unsupported: str | None = None


def read_manifest(path: Path) -> Manifest:
    """Return the state of a database that a manifest, a log of edits, describes: its records are
    applied one after the other. Raises `CorruptionError` with the offset of damage. After an edit
    that is not supported no more is applied, except which logs are tracked, but the framing is
    checked to the end."""
    manifest = Manifest(path)
    reader = FramedLogReader(path)
    for offset, record in reader.records():
        try:
            if manifest.unsupported is None:
                manifest.version.apply(decode_edit(record))
            else:
                with suppress(CorruptionError, UnsupportedLayout):
                    manifest.version.apply_tracking(decode_edit(record))
        except UnsupportedLayout as error:
            manifest.unsupported = str(error)
        except CorruptionError as error:
            raise CorruptionError(path, offset, error.reason) from None
    manifest.torn_offset = reader.torn_offset
    return manifest


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
    return {number: path for number, path in logs.items() if number >= manifest.version.log_number}


def needed_logs(manifest: Manifest, directory: Path) -> list[FramedLogReader]:
    """Return readers of the logs of `list_needed_logs`, oldest first."""
    return [FramedLogReader(path) for path in list_needed_logs(manifest, directory).values()]


def open_logs(directory: Path, open_files: ExitStack) -> dict[int, FramedLogReader]:
    """Return readers of all write-ahead logs, by number, oldest first; their files stay open until
    `open_files` is closed. A log that a writer removes meanwhile is left out."""
    readers = {}
    for number, path in _numbered_files(directory, "log").items():
        with suppress(FileNotFoundError):
            file = open_files.enter_context(open_for_reading(path))
            readers[number] = FramedLogReader(path, file)
    return readers


def check_logs(manifest: Manifest, logs: Iterable[FramedLogReader]) -> list[TornTail]:
    """Check the needed write-ahead logs in full; return each tail that a crash tore, that is, a
    record at a log's end of which bytes are missing. A log that is not supported is passed over,
    and noted in `manifest.unsupported`. Raises `CorruptionError` for damage, for a torn record that
    records of later logs follow, and for a log whose first write is not the next one after those
    known so far: a log before it is missing. Older bytes at the end of a file that was used before
    are a tail unless the first write of a later log shows that none is missing there."""
    torn_tails: list[TornTail] = []
    doubtful_tails: list[TornTail] = []
    last_write = manifest.version.last_sequence
    for reader in logs:
        path, has_begun = reader.path, False
        try:
            for offset, record in reader.records():
                if torn_tails:
                    reason = f"ends inside a record, but {path.name} follows"
                    raise CorruptionError(torn_tails[-1].path, torn_tails[-1].offset, reason)
                # Only the first write of a log shows that a log before it is missing.
                may_skip = has_begun or manifest.unsupported is not None
                last_write = _last_write_of(path, offset, record, last_write, may_skip)
                has_begun = True
                if not may_skip:
                    doubtful_tails = []
        except UnsupportedLayout as error:
            manifest.unsupported = str(error)
        if reader.torn_offset is not None:
            tails = doubtful_tails if reader.is_reused else torn_tails
            tails.append(TornTail(path, reader.torn_offset, reader.torn_detail))
    return doubtful_tails + torn_tails


def _last_write_of(path: Path, offset: int, record: bytes, last_write: int, may_skip: bool) -> int:
    """Return the sequence number of the last write including this record, a write batch;
    `last_write` is the number before it. Raises `CorruptionError` if writes between them are
    missing, unless `may_skip`."""
    try:
        first_write, write_count = read_batch_header(record)
    except CorruptionError as error:
        raise CorruptionError(path, offset, error.reason) from None
    if not may_skip and first_write > last_write + 1:
        reason = f"begins with write {first_write}, the last known one is {last_write}"
        missing = "an earlier write-ahead log or the manifest's end is missing"
        raise CorruptionError(path, offset, f"{reason}: {missing}")
    return max(last_write, first_write + write_count - 1)


def check_tables(manifest: Manifest, directory: Path) -> list[Path]:
    """Return the table files that the manifest does not name. A crash leaves such files: RocksDB
    writes a table first, then its name. Raises `CorruptionError` if a named file is missing, or if
    an unnamed one must have been named once, so that the manifest has lost its end."""
    if manifest.unsupported is not None:
        return []
    tables = _numbered_files(directory, "sst")
    missing_tables = sorted(set(manifest.version.tables) - set(tables))
    if missing_tables:
        reason = f"missing: {manifest.path.name} lists this table file"
        raise CorruptionError(directory / f"{missing_tables[0]:06d}.sst", None, reason)
    unnamed = {n: table for n, table in tables.items() if n not in manifest.version.all_tables}
    if _first_logs_are_gone(manifest, directory):
        for number, path in unnamed.items():
            # A flush gives its table a higher number than the log that had the rows. A table
            # without a footer was never finished, so no log was removed for it.
            if number >= manifest.version.log_number and _has_footer(path):
                end_offset = manifest.torn_offset
                if end_offset is None:
                    end_offset = manifest.path.stat().st_size
                reason = f"the end is missing: {path.name} is here, but no record lists it"
                raise CorruptionError(directory / manifest.path.name, end_offset, reason)
    return list(unnamed.values())


def _first_logs_are_gone(manifest: Manifest, directory: Path) -> bool:
    """Return whether a flush removed the write-ahead logs that existed when this manifest began. If
    one still exists, its rows are read from it, so table files without a name are leftovers of a
    killed flush or compaction, and nothing is lost."""
    manifest_number = int(manifest.path.name.removeprefix("MANIFEST-"))
    logs = list_needed_logs(manifest, directory)
    return manifest.version.log_number not in logs and all(
        number >= manifest_number for number in logs
    )


def _has_footer(table: Path) -> bool:
    """Return whether the file ends with the magic number of a table file."""
    with open_for_reading(table) as file, convert_read_errors(table):
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        return int.from_bytes(file.read(8), "little") in _TABLE_MAGICS
