"""The files of a journal directory, and lastMark, before which ledger storage has everything.

A replay starts at the mark, and files before it are deleted. Sources: `bookie/Journal`
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
from bkstore.files.os_errors import convert_read_errors, convert_write_errors
from bkstore.formats.journal import LAST_MARK_SIZE, LogMark, decode_mark, encode_mark

NO_MARK = LogMark(0, 0)
"""The mark if no file has one: replay everything."""

JOURNAL_SUFFIX = ".txn"
_FILE_NAME_PATTERN = re.compile(r"(0|[1-9a-f][0-9a-f]{0,14}|[1-7][0-9a-f]{15})\.txn")


def journal_name(journal_id: int) -> str:
    """Return a journal file's name: its id in lower-case hex without padding.

    >>> journal_name(1795244360713)
    '1a1fce70409.txn'
    """
    if not 0 <= journal_id < 1 << 63:
        raise InvalidArgument(f"journal id {journal_id} is outside 0..2^63-1")
    return f"{journal_id:x}{JOURNAL_SUFFIX}"


def list_journal_files(current: Path) -> list[tuple[int, Path]]:
    """Return (id, path) of the journal files in a ``current/`` directory, by id. Raises
    `UnsupportedLayout` for a .txn file with a name that no bookie gives (a real one does not start,
    or looks for another file), `BkstoreError` if the directory cannot be read."""
    with convert_read_errors(current):
        names = os.listdir(current)
    ids_and_paths = []
    for name in names:
        if not name.endswith(JOURNAL_SUFFIX):
            continue
        match = _FILE_NAME_PATTERN.fullmatch(name)
        if match is None:
            problem = "not a journal file's name (lower-case hex without padding)"
            raise UnsupportedLayout(f"{current / name}: {problem}")
        ids_and_paths.append((int(match[1], 16), current / name))
    return sorted(ids_and_paths)


def last_mark_name(index: int | None = None) -> str:
    """Return "lastMark", or "lastMark.<index>" if there are several journal directories."""
    return "lastMark" if index is None else f"lastMark.{index}"


def read_mark(path: Path) -> LogMark | None:
    """Return the mark in one file; None if it is missing, or shorter than a mark (a real bookie
    writes in place, so a crash may cut it). Raises `CorruptionError` for a negative mark,
    `BkstoreError` for a file that cannot be read."""
    data = _read_first_bytes(path)
    if data is None or len(data) < LAST_MARK_SIZE:
        return None
    try:
        return decode_mark(data)
    except CorruptionError as error:
        raise error.relocate(path) from None


def _read_first_bytes(path: Path) -> bytes | None:
    """Return the bytes of the file's mark, fewer if it is cut; None if the file is missing."""
    with convert_read_errors(path):
        try:
            fd = open_regular(path)
        except FileNotFoundError:
            return None
        try:
            return os.pread(fd, LAST_MARK_SIZE, 0)
        finally:
            os.close(fd)


def read_last_mark(ledger_currents: Sequence[Path], index: int | None = None) -> LogMark:
    """Return the position in journal `index` (None if it is the only one) where a replay starts:
    the greatest of the marks that the ledger directories have, (0, 0) if none has one. Raises what
    `read_mark` raises."""
    name = last_mark_name(index)
    marks = [read_mark(current / name) for current in ledger_currents]
    return max((mark for mark in marks if mark is not None), default=NO_MARK)


def write_last_mark(
    ledger_currents: Sequence[Path],
    mark: LogMark,
    index: int | None = None,
    *,
    files: Files = OS_FILES,
) -> None:
    """Write the mark, where a replay of the journal is to start, to every ledger directory,
    durably, except where the stored one is greater.

    Each file is replaced atomically. Before the call, ledger storage must have everything before
    the mark, synced. After `WriteFailed`, the directories before the failed one have the new mark.
    """
    data = encode_mark(mark)
    for current in ledger_currents:
        path = current / last_mark_name(index)
        stored_mark = read_mark(path)
        if stored_mark is None or stored_mark < mark:
            with convert_write_errors(path):
                files.write_file(path, data)


def delete_journals_before(
    current: Path, mark: LogMark, keep: int = 5, *, files: Files = OS_FILES
) -> list[Path]:
    """Delete the journal files with ids below the mark's, except the newest `keep` of them.

    A replay starts at the mark, which must be durable. Returns the deleted files, oldest first. The
    deletions are not synced: a file that reappears after a crash does no harm. After `WriteFailed`
    the following files stay.
    """
    if keep < 0:
        raise InvalidArgument(f"cannot keep {keep} journal files")
    older = [path for id_, path in list_journal_files(current) if id_ < mark.journal_id]
    deleted = older[: max(len(older) - keep, 0)]
    for path in deleted:
        with convert_write_errors(path):
            files.unlink(path)
    return deleted
