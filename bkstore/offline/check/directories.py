"""Check the files in a bookie's directories other than logs, index and journals. Sources:
`EntryLoggerAllocator`, `TransactionalEntryLogCompactor`, `bookie/Cookie`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.opening import read_file
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.unknown_files import find_unknown_files
from bkstore.storage.read_only.bookie_dir import BookieDir

_LAST_ID = "lastId"
_COOKIE = "VERSION"
_MAX_LAST_ID_BYTES = 64


def check_directories(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield findings on a bookie's directories. Lists them, and reads cookies and `lastId`."""
    folders = bookie.folders
    # A folder may serve several purposes, and is checked once.
    currents = list(dict.fromkeys([*folders.ledger, *folders.index, *folders.journal]))
    for unknown_file in find_unknown_files(currents):
        yield CheckFinding("leftover", "oddity", unknown_file.detail, str(unknown_file.path))
    yield from _check_cookies(bookie, currents)
    yield from _check_last_ids(bookie)


def _check_cookies(bookie: BookieDir, currents: list[Path]) -> Iterator[CheckFinding]:
    """Yield findings on directories without a cookie, if others have one."""
    if bookie.folders.cookie is None:
        return
    for current in currents:
        if not os.path.lexists(current / _COOKIE):
            detail = "no cookie here, but one in other directories: a bookie does not start"
            yield CheckFinding("cookie", "oddity", detail, str(current / _COOKIE))


def _check_last_ids(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield findings on `lastId` files that are unreadable, lower than a log's id, or different."""
    ids: dict[Path, int] = {}
    for dir_index, current in enumerate(bookie.folders.ledger):
        path = current / _LAST_ID
        if not os.path.lexists(path):
            continue
        try:
            last_id = ids[path] = _read_last_id(path)
        except BkstoreError as error:
            yield CheckFinding.from_error("last-id", error)
            continue
        log_ids = [log.log_id for log in bookie.entry_logs if log.dir_index == dir_index]
        highest = max(log_ids, default=-1)
        if highest > last_id:
            detail = f"says {last_id:x}, but {highest:x}.log is here: a bookie continues from that"
            yield CheckFinding("last-id", "oddity", detail, str(path))
    # With index files, log ids are one sequence over all directories.
    if bookie.layout == "idx" and len(set(ids.values())) > 1:
        id_list = ", ".join(f"{path} {log_id:x}" for path, log_id in ids.items())
        yield CheckFinding("last-id", "oddity", f"differ: {id_list}", str(next(iter(ids))))


def _read_last_id(path: Path) -> int:
    """Return the log id in a `lastId` file; raise `CorruptionError` if it is not one in hex."""
    text = read_file(path, _MAX_LAST_ID_BYTES).strip()
    if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", text):
        raise CorruptionError(path, 0, f"is not a hexadecimal log id: {text[:20]!r}")
    return int(text, 16)
