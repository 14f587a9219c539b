"""Where a source's directories lie in a target, and the files there that are neither log nor index.

A bookie finds its data by the names and the order of its directories, so the target has them as
the source does. Journals, marks, `lastId` and cookies go over byte for byte; what the target's
layout cannot have as it is, the cookie's index directories, is changed and said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import readable
from bkstore.formats import cookie as cookie_format
from bkstore.index.api import Finding
from bkstore.index.hierarchical.file_tree import has_index_files, is_level, stray_files
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.storage.directories.layout import DATABASES, Layout
from bkstore.storage.directories.server_conf import flat_server_conf
from bkstore.storage.directories.unknown_files import METADATA_CACHE
from bkstore.storage.read_only.bookie_dir import BookieDir

_LOG = re.compile(r"[0-9a-f]{1,8}\.log(\.compacting|\.[0-9a-f]{1,8}\.compacted)?")
"""Logs go over by their own rules. Of compactions that were cut short nothing does: what they were
to replace is still there."""


@dataclass(frozen=True)
class TargetDirectories:
    """The ``current/`` directories of a target, relative to it, in the source's order.

    `places` says for each ``current/`` of the source where it goes. With `index_moved` the source
    has another number of index than of ledger directories, which db storage cannot have: the
    databases stand in the ledger directories then.
    """

    ledger: tuple[Path, ...]
    index: tuple[Path, ...]
    journal: tuple[Path, ...]
    places: dict[Path, Path]
    index_moved: bool

    @classmethod
    def of(cls, bookie: BookieDir, to: Layout) -> TargetDirectories:
        """Return those of a source that is to be rewritten as layout `to`."""
        folders = bookie.folders
        every = dict.fromkeys([*folders.ledger, *folders.index, *folders.journal])
        places = {current: _relative(bookie, current) for current in every}
        ledger, index, journal = (
            tuple(places[current] for current in found)
            for found in (folders.ledger, folders.index, folders.journal)
        )
        moved = to == "rocksdb" and len(index) != len(ledger)
        if moved:  # a directory that is for the index alone would be taken for one that has it
            kept = {*folders.ledger, *folders.journal}
            places = {current: place for current, place in places.items() if current in kept}
        return cls(ledger, ledger if moved else index, journal, places, moved)


def _relative(bookie: BookieDir, current: Path) -> Path:
    configured = bookie.folders.configured.get(current)
    if configured is None:
        top = Path(os.path.abspath(bookie.path))
        top = top.parent if top.name == "current" else top
        return Path(os.path.relpath(os.path.abspath(current), top))
    home = bookie.path.parent
    if configured.is_relative_to(home):
        return configured.relative_to(home) / "current"
    return Path(*configured.parts[1:]) / "current"


class OtherFile(NamedTuple):
    """A file to carry: where it is, where it goes (relative), what it holds if that is changed."""

    source: Path
    target: Path
    size: int
    data: bytes | None = None


def other_files(
    bookie: BookieDir, target: TargetDirectories, findings: list[Finding]
) -> Iterator[OtherFile]:
    """Yield the files of a bookie that are neither entry logs nor index, by directory and name.

    What does not go over is a finding: what is no regular file, folders that are none of the
    index, files under odd names among those of the index, compactions that were cut short, and
    an index of the layout that was not read.
    """
    for current, place in target.places.items():
        with readable(current):
            found = sorted(os.scandir(current), key=lambda entry: entry.name)
        for entry in found:
            name = entry.name
            path = Path(entry.path)
            why = _left_behind(bookie, name, entry.is_dir())
            if why is not None:
                if why:
                    findings.append(Finding("oddity", f"not in the target: {why}", str(path)))
                continue
            try:
                size = check_regular(path).st_size
            except CorruptionError as error:
                findings.append(Finding.of(error))
                continue
            data = _cookie(bookie) if _changes(name, target) else None
            yield OtherFile(path, place / name, size if data is None else len(data), data)
        if bookie.layout == "rocksdb" and has_index_files(current):
            detail = "not in the target: index files, of the index that was not read"
            findings.append(Finding("oddity", detail, str(current)))
        for odd in stray_files(current):
            detail = "not in the target: is under no name of an index file"
            findings.append(Finding("oddity", detail, odd))


def _left_behind(bookie: BookieDir, name: str, is_folder: bool) -> str | None:
    """Return why something in a ``current/`` does not go over as it is; None of what does.

    "" where that needs no word: logs and index go over by their own rules, and a bookie makes
    the marker and the metadata cache anew.
    """
    if name in (MARKER_NAME, METADATA_CACHE):
        return ""
    if _LOG.fullmatch(name):
        return "" if name.endswith(".log") else "of a compaction that was cut short"
    if name in DATABASES:
        return "" if bookie.layout == "rocksdb" else "is of the index that was not read"
    if not is_folder:
        return None
    return "" if is_level(name) else "a folder that no bookie knows"


def _changes(name: str, target: TargetDirectories) -> bool:
    return target.index_moved and name == cookie_format.FILE_NAME


def _cookie(bookie: BookieDir) -> bytes | None:
    cookie = bookie.folders.cookie
    return None if cookie is None else cookie_format.encode(replace(cookie, index_dirs=None))


def target_conf(bookie: BookieDir, target: TargetDirectories) -> bytes | None:
    """Return the `bk_server.conf` for the target's top, None where the source was named by none.

    As it is, with what it includes in its place, and without index directories where these are
    moved.
    """
    if not bookie.folders.configured:
        return None
    with readable(bookie.path):
        return flat_server_conf(bookie.path, "indexDirectories" if target.index_moved else "")
