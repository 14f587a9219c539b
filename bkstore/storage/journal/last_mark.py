"""The files of a journal directory, and lastMark: up to where ledger storage has it all.

Names, listing and deleting of journal files stand here because lastMark decides about them:
a replay begins at the mark, and files before it are deleted. Sources: `bookie/Journal`
(`LastLogMark`, `listJournalIds`, `checkpointComplete`). Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import readable, writing
from bkstore.formats.journal import LAST_MARK_SIZE, LogMark, decode_mark, encode_mark

NO_MARK = LogMark(0, 0)
"""The mark where no file has one: replay everything."""

SUFFIX = ".txn"
_NAME = re.compile(r"(0|[1-9a-f][0-9a-f]{0,14}|[1-7][0-9a-f]{15})\.txn")


def journal_name(journal_id: int) -> str:
    """Return a journal file's name: its id in lower-case hex without padding.

    >>> journal_name(1795244360713)
    '1a1fce70409.txn'
    """
    if not 0 <= journal_id < 1 << 63:
        raise InvalidArgument(f"journal id {journal_id} is outside 0..2^63-1")
    return f"{journal_id:x}{SUFFIX}"


def journal_files(current: Path) -> list[tuple[int, Path]]:
    """Return (id, path) of the journal files in a ``current/`` directory, by id.

    Raises `UnsupportedLayout` for a .txn file whose name is none that a bookie gives: a real one
    does not start with it, or looks for a file of another name. `BkstoreError` if the directory
    cannot be read.
    """
    with readable(current):
        names = os.listdir(current)
    found = []
    for name in names:
        if not name.endswith(SUFFIX):
            continue
        match = _NAME.fullmatch(name)
        if match is None:
            what = "no journal file's name (lower-case hex without padding)"
            raise UnsupportedLayout(f"{current / name}: {what}")
        found.append((int(match[1], 16), current / name))
    return sorted(found)


def last_mark_name(index: int | None = None) -> str:
    """Return "lastMark", or "lastMark.<index>" where there are several journal directories."""
    return "lastMark" if index is None else f"lastMark.{index}"


def mark_of_file(path: Path) -> LogMark | None:
    """Return the mark in one file; None if it is missing or shorter than a mark.

    A short one is what a crash leaves of a real bookie's file, which is written in place.
    Raises `CorruptionError` for a negative mark, `BkstoreError` for a file that cannot be read.
    """
    data = _first_bytes(path)
    if data is None or len(data) < LAST_MARK_SIZE:
        return None
    try:
        return decode_mark(data)
    except CorruptionError as error:
        raise error.within(path) from None


def _first_bytes(path: Path) -> bytes | None:
    with readable(path):
        try:
            fd = open_regular(path)
        except FileNotFoundError:
            return None
        try:
            return os.pread(fd, LAST_MARK_SIZE, 0)
        finally:
            os.close(fd)


def read_last_mark(ledger_currents: Sequence[Path], index: int | None = None) -> LogMark:
    """Return the greatest mark that the ledger directories have of one journal.

    `index` is the journal directory's number, None if it is the only one. (0, 0) where no
    directory has a mark. Raises as `mark_of_file`.
    """
    name = last_mark_name(index)
    marks = [mark_of_file(current / name) for current in ledger_currents]
    return max((mark for mark in marks if mark is not None), default=NO_MARK)


def write_last_mark(
    ledger_currents: Sequence[Path],
    mark: LogMark,
    index: int | None = None,
    *,
    files: Files = OS_FILES,
) -> None:
    """Write a mark into every ledger directory, durably; a file that is ahead of it stays.

    Each file has the old mark or the new one at any time. Ledger storage must have all that
    lies before the mark, synced, when this is called. Raises `WriteFailed`; directories before
    the one at fault have the new mark then, which is as true there.
    """
    data = encode_mark(mark)
    for current in ledger_currents:
        path = current / last_mark_name(index)
        there = mark_of_file(path)
        if there is None or there < mark:
            with writing(path):
                files.write_file(path, data)


def delete_journals_before(
    current: Path, mark: LogMark, keep: int = 5, *, files: Files = OS_FILES
) -> list[Path]:
    """Delete the journal files with ids below the mark's, but for the newest `keep` of them.

    Returns what was deleted, oldest first. Call it when the mark is durable. The deletions
    are not: a file before the mark that a crash brings back does no harm. Raises
    `WriteFailed`; files it had not come to stay.
    """
    if keep < 0:
        raise InvalidArgument(f"{keep} journal files cannot be kept")
    before = [path for number, path in journal_files(current) if number < mark.journal_id]
    gone = before[: max(len(before) - keep, 0)]
    for path in gone:
        with writing(path):
            files.unlink(path)
    return gone
