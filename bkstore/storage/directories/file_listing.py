"""The files in a bookie's directories: entry logs, journals, and whether any of them moved.

Names and sizes only; nothing is opened. What has a log's name and is no file is listed, so that
reading it says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import is_absent, is_medium_error, readable
from bkstore.index.api import Finding

_LOG = re.compile(r"([0-9a-f]{1,8})\.log")
_JOURNAL = re.compile(r"([0-9a-f]{1,16})\.txn")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One entry log file: its directory's number, its id, where it is and how long."""

    dir_index: int
    log_id: int
    path: str
    bytes: int


def entry_logs_in(currents: Sequence[Path]) -> list[LogFile]:
    """Return the entry log files, by directory and log id; 0 bytes where one is no file."""
    found = []
    for number, current in enumerate(currents):
        with readable(current):
            for entry in os.scandir(current):
                match = _LOG.fullmatch(entry.name)
                if match and (size := _size(entry)) is not None:
                    found.append(LogFile(number, int(match[1], 16), entry.path, size))
    return sorted(found, key=lambda log: (log.dir_index, log.log_id))


def _size(entry: os.DirEntry[str]) -> int | None:
    """Return the bytes of a file, 0 for what is none, None for what is gone since the listing."""
    try:
        return check_regular(entry.path).st_size
    except CorruptionError:
        return 0
    except FileNotFoundError:
        return None


def journals_in(currents: Sequence[Path]) -> list[Path]:
    """Return the journal files, by directory and journal id."""
    found = []
    for number, current in enumerate(currents):
        with readable(current):
            matches = filter(None, map(_JOURNAL.fullmatch, os.listdir(current)))
        found += [(number, int(match[1], 16), current / match[0]) for match in matches]
    return [path for _, _, path in sorted(found)]


def odd_files(paths: Iterable[str | Path]) -> Iterator[Finding]:
    """Yield a finding for each path that is no regular file; one that is gone is none."""
    for path in paths:
        try:
            check_regular(path)
        except CorruptionError as error:
            yield Finding.of(error)
        except FileNotFoundError:  # gone since the listing
            continue


def sizes_and_times(
    folders: Iterable[str | Path], inside: Container[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return size and time of change of each file in these folders; (-1, 0) for a dead link.

    Also of those in their folders called `inside`; a folder that is not there has none.
    """
    seen = {}
    unread = list(folders)
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
                    info = entry.stat()
                    seen[entry.path] = (info.st_size, info.st_mtime_ns)
                elif entry.name in inside:
                    unread.append(entry.path)
            except OSError as error:
                if not (is_absent(error) or is_medium_error(error)):
                    raise
                seen[entry.path] = (-1, 0)  # gone since the listing, a dead link, or damaged
    return seen
