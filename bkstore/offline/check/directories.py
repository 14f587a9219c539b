"""What lies in a bookie's directories beside logs, index and journals, and what it says of them.

Leftovers of interrupted compactions, names that no look-up forms, the id of the last log, the
cookie. Sources: `EntryLoggerAllocator`, `TransactionalEntryLogCompactor`, `bookie/Cookie`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.opening import read_whole
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.unknown_files import unknown_files
from bkstore.storage.read_only.bookie_dir import BookieDir

_LAST_ID = "lastId"
_COOKIE = "VERSION"
_LAST_ID_LIMIT = 64


def check_directories(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield what is odd about the files of a bookie's directories. Reads names and two files."""
    folders = bookie.folders
    currents = list(dict.fromkeys([*folders.ledger, *folders.index, *folders.journal]))
    for found in unknown_files(currents):
        yield CheckFinding("leftover", "oddity", found.detail, str(found.path))
    yield from _cookies(bookie, currents)
    yield from _last_ids(bookie)


def _cookies(bookie: BookieDir, currents: list[Path]) -> Iterator[CheckFinding]:
    """Yield the directories without a cookie, where others have one; all that are must agree."""
    if bookie.folders.cookie is None:
        return
    for current in currents:
        if not os.path.lexists(current / _COOKIE):
            detail = "no cookie here, and one in other directories: a bookie does not start"
            yield CheckFinding("cookie", "oddity", detail, str(current / _COOKIE))


def _last_ids(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield `lastId` files that say no id, another one than the others, or one that is behind."""
    said: dict[Path, int] = {}
    for number, current in enumerate(bookie.folders.ledger):
        path = current / _LAST_ID
        if not os.path.lexists(path):
            continue
        try:
            said[path] = _id_in(path)
        except BkstoreError as error:
            yield CheckFinding.of_error("last-id", error)
            continue
        highest = max(
            (log.log_id for log in bookie.entry_logs if log.dir_index == number), default=-1
        )
        if highest > said[path]:
            detail = f"says {said[path]:x}, but {highest:x}.log is here: a bookie counts on from it"
            yield CheckFinding("last-id", "oddity", detail, str(path))
    if bookie.layout == "idx" and len(set(said.values())) > 1:  # one sequence over all
        told = ", ".join(f"{path} {number:x}" for path, number in said.items())
        yield CheckFinding("last-id", "oddity", f"differ: {told}", str(next(iter(said))))


def _id_in(path: Path) -> int:
    text = read_whole(path, _LAST_ID_LIMIT).strip()
    if not re.fullmatch(rb"[0-9a-fA-F]{1,16}", text):
        raise CorruptionError(path, 0, f"is no log id in hex: {text[:20]!r}")
    return int(text, 16)
