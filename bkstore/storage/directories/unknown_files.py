"""Lists files in a bookie's directories whose names no bookie gives: leftovers, copies, others.

For example a renamed copy (`384.idx.bak`), a partial file of rsync (`.384.idx.AbC123`), or the
output of an interrupted compaction: never read as data, only listed. Uses names only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entrylog import parse_log_name
from bkstore.index.hierarchical.file_tree import find_stray_files
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.storage.directories.layout import DATABASE_NAMES
from bkstore.storage.directories.writer_lock import LOCK_NAME

METADATA_CACHE = "metadata-cache"
"""The folder of the database in which a bookie may keep the ledgers maps of its logs."""

_COMPACTING_NAME = re.compile(r"[0-9a-f]{1,8}\.log\.compacting")
_COMPACTED_NAME = re.compile(r"([0-9a-f]{1,8})\.log\.([0-9a-f]{1,8})\.compacted")
_KNOWN_NAME = re.compile(r"lastMark(\.\d+)?|[0-9a-f]{1,16}\.txn|[0-9a-f]{1,2}|[0-9a-f]{8}|DIRTY")
_KNOWN_NAMES = {"lastId", "VERSION", MARKER_NAME, LOCK_NAME, METADATA_CACHE, *DATABASE_NAMES}


class UnknownFile(NamedTuple):
    """A file or folder with an unknown name, and a description of it."""

    path: Path
    detail: str


def find_unknown_files(currents: Iterable[Path]) -> Iterator[UnknownFile]:
    """Yield the files and folders with names that no running bookie leaves, sorted."""
    for current in currents:
        with convert_read_errors(current):
            for name in sorted(os.listdir(current)):
                detail = _describe_unknown(name)
                if detail is not None:
                    yield UnknownFile(current / name, detail)
            for path in find_stray_files(current):
                yield UnknownFile(Path(path), "not the name of an index file: it is never read")


def _describe_unknown(name: str) -> str | None:
    """Return what is odd about a name in a ``current/`` directory, None if it is known."""
    if name in _KNOWN_NAMES or _KNOWN_NAME.fullmatch(name) or parse_log_name(name) is not None:
        return None
    if name.endswith((".idx", ".idx.rloc")):  # the index reports misplaced ones
        return None
    if _COMPACTING_NAME.fullmatch(name):
        return "output of an interrupted compaction, which a bookie deletes at start"
    if compacted := _COMPACTED_NAME.fullmatch(name):
        new, old = (int(part, 16) for part in compacted.groups())
        logs = f"log {old} to {new}"
        return f"compaction of {logs} is not in the index yet: a bookie finishes it at start"
    if name.endswith(".log"):
        return "not the name of an entry log: no location can refer to it"
    return "a file unknown to bookies"
