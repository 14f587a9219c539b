"""Files in a bookie's directories whose names no bookie gives: leftovers, copies, other people's.

A copy under another name (`384.idx.bak`), a partial file of rsync (`.384.idx.AbC123`), the output
of a compaction that was cut short. None of them is read as data; they are named, so that nobody
takes them for a part of the bookie. Names only; nothing is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bkstore.files.os_errors import readable
from bkstore.formats.entrylog import log_id_of
from bkstore.index.hierarchical.file_tree import stray_files
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.storage.directories.layout import DATABASES
from bkstore.storage.directories.writer_lock import LOCK_NAME

METADATA_CACHE = "metadata-cache"
"""The folder of the database in which a bookie may keep the ledgers maps of its logs."""

_COMPACTING = re.compile(r"[0-9a-f]{1,8}\.log\.compacting")
_COMPACTED = re.compile(r"([0-9a-f]{1,8})\.log\.([0-9a-f]{1,8})\.compacted")
_KNOWN = re.compile(r"lastMark(\.\d+)?|[0-9a-f]{1,16}\.txn|[0-9a-f]{1,2}|[0-9a-f]{8}|DIRTY")
_NAMES = {"lastId", "VERSION", MARKER_NAME, LOCK_NAME, METADATA_CACHE, *DATABASES}


class UnknownFile(NamedTuple):
    """A file or folder, and what its name says."""

    path: Path
    detail: str


def unknown_files(currents: Iterable[Path]) -> Iterator[UnknownFile]:
    """Yield what has a name that a running bookie leaves nowhere, by directory and name."""
    for current in currents:
        with readable(current):
            for name in sorted(os.listdir(current)):
                detail = _meaning(name)
                if detail is not None:
                    yield UnknownFile(current / name, detail)
            for path in stray_files(current):
                yield UnknownFile(Path(path), "not the name of an index file: nothing reads it")


def _meaning(name: str) -> str | None:
    """Return what is odd about the name of something in a ``current/``; None of a known one."""
    if name in _NAMES or _KNOWN.fullmatch(name) or log_id_of(name) is not None:
        return None
    if name.endswith((".idx", ".idx.rloc")):  # the index tells of those out of their place
        return None
    compacted = _COMPACTED.fullmatch(name)
    if _COMPACTING.fullmatch(name):
        return "output of an interrupted compaction, which a bookie deletes at start"
    if compacted:
        new, old = (int(part, 16) for part in compacted.groups())
        return (
            f"compaction of log {old} to {new} had not reached the index: a bookie finishes it at "
            "start"
        )
    if name.endswith(".log"):
        return "not the name of an entry log: no location leads here"
    return "a file that no bookie knows"
