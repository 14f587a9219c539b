"""Lists the entry logs and journals in a bookie's directories, and detects changes of files.

Uses names and sizes only; nothing is opened. An entry with a log's name that is not a regular file
is listed too, so that reading it raises the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import convert_read_errors, is_absent, is_medium_error
from bkstore.index.api import Finding

SizeAndTime = tuple[int, int]
_LOG_NAME = re.compile(r"([0-9a-f]{1,8})\.log")
_JOURNAL_NAME = re.compile(r"([0-9a-f]{1,16})\.txn")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One entry log file: its directory's index, its id, its path and its size."""

    dir_index: int
    log_id: int
    path: str
    bytes: int


def list_entry_logs(currents: Sequence[Path]) -> list[LogFile]:
    """Return the entry log files, by directory and log id; 0 bytes if not a regular file."""
    logs = []
    for dir_index, current in enumerate(currents):
        with convert_read_errors(current):
            for entry in os.scandir(current):
                match = _LOG_NAME.fullmatch(entry.name)
                if match and (size := _file_size(entry)) is not None:
                    logs.append(LogFile(dir_index, int(match[1], 16), entry.path, size))
    return sorted(logs, key=lambda log: (log.dir_index, log.log_id))


def _file_size(entry: os.DirEntry[str]) -> int | None:
    """Return a file's size, 0 if it is not a regular file, None if it was deleted meanwhile."""
    try:
        return check_regular(entry.path).st_size
    except CorruptionError:
        return 0
    except FileNotFoundError:
        return None


def list_journals(currents: Sequence[Path]) -> list[Path]:
    """Return the journal files, by directory and journal id."""
    journals = []
    for dir_index, current in enumerate(currents):
        with convert_read_errors(current):
            matches = filter(None, map(_JOURNAL_NAME.fullmatch, os.listdir(current)))
        journals += [(dir_index, int(match[1], 16), current / match[0]) for match in matches]
    return [path for _, _, path in sorted(journals)]


def find_irregular_files(paths: Iterable[str | Path]) -> Iterator[Finding]:
    """Yield a finding for each path that is not a regular file; skip missing paths."""
    for path in paths:
        try:
            check_regular(path)
        except CorruptionError as error:
            yield Finding.of(error)
        except FileNotFoundError:  # deleted since the listing
            continue


def stat_files(folders: Iterable[Path], subfolders: Container[str] = ()) -> dict[str, SizeAndTime]:
    """Return (size, modification time in ns) by path of the files in these folders, and in those of
    their subfolders whose name is in `subfolders`; (-1, 0) for a file whose status cannot be read.
    A missing folder has no files."""
    files = {}
    unread: list[str | Path] = list(folders)
    while unread:
        try:
            entries = os.scandir(unread.pop())
        except OSError as error:
            if not is_absent(error):
                raise
            continue
        for entry in entries:
            try:
                if not entry.is_dir():
                    status = entry.stat()
                    files[entry.path] = (status.st_size, status.st_mtime_ns)
                elif entry.name in subfolders:
                    unread.append(entry.path)
            except OSError as error:
                if not (is_absent(error) or is_medium_error(error)):
                    raise
                files[entry.path] = (-1, 0)  # deleted since the listing, a dead link, or damaged
    return files
