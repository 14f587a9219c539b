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
from bkstore.formats.entrylog import log_id_of
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.layout import DATABASES
from bkstore.storage.directories.writer_lock import LOCK_NAME
from bkstore.storage.entry_log.metadata_cache import METADATA_CACHE
from bkstore.storage.read_only.bookie_dir import BookieDir

__all__ = ["check_directories"]

_LAST_ID = "lastId"
_COOKIE = "VERSION"
_LAST_ID_LIMIT = 64
_COMPACTING = re.compile(r"[0-9a-f]{1,8}\.log\.compacting")
_COMPACTED = re.compile(r"([0-9a-f]{1,8})\.log\.([0-9a-f]{1,8})\.compacted")
_KNOWN = re.compile(r"lastMark(\.\d+)?|[0-9a-f]{1,16}\.txn|[0-9a-f]{1,2}|[0-9a-f]{8}|DIRTY")
_NAMES = {_LAST_ID, _COOKIE, MARKER_NAME, LOCK_NAME, METADATA_CACHE, *DATABASES}


def check_directories(bookie: BookieDir) -> Iterator[CheckFinding]:
    """Yield what is odd about the files of a bookie's directories. Reads names and two files."""
    folders = bookie.folders
    currents = list(dict.fromkeys([*folders.ledger, *folders.index, *folders.journal]))
    for current in currents:
        for name in sorted(os.listdir(current)):
            yield from _name(current / name)
    yield from _cookies(bookie, currents)
    yield from _last_ids(bookie)


def _name(path: Path) -> Iterator[CheckFinding]:
    """Yield what a name says, where it is none that a running bookie leaves."""
    name = path.name
    if name in _NAMES or _KNOWN.fullmatch(name) or log_id_of(name) is not None:
        return
    if name.endswith((".idx", ".idx.rloc")):  # the index tells of those out of their place
        return
    compacted = _COMPACTED.fullmatch(name)
    if _COMPACTING.fullmatch(name):
        detail = "output of an interrupted compaction, which a bookie deletes at start"
    elif compacted:
        new, old = (int(part, 16) for part in compacted.groups())
        detail = (
            f"compaction of log {old} to {new} had not reached the index: a bookie finishes it at "
            "start"
        )
    elif name.endswith(".log"):
        detail = "not the name of an entry log: no location leads here"
    else:
        detail = "a file that no bookie knows"
    yield CheckFinding("leftover", "oddity", detail, str(path))


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
