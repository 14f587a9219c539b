"""Map a source's directories to a target's, and list its files that are neither log nor index.

A bookie finds its data by the names and the order of its directories, so both are kept in the
target. Journals, marks, `lastId` and cookies are copied byte for byte. The exception is a cookie
with index directories that the target's layout cannot have: it is changed, with a finding.
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
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats import cookie as cookie_format
from bkstore.index.api import Finding
from bkstore.index.hierarchical.file_tree import find_stray_files, has_index_files, is_level_name
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.storage.directories.layout import DATABASE_NAMES, Layout
from bkstore.storage.directories.server_conf import flatten_server_conf
from bkstore.storage.directories.unknown_files import METADATA_CACHE
from bkstore.storage.read_only.bookie_dir import BookieDir

_LOG_NAME = re.compile(r"[0-9a-f]{1,8}\.log(\.compacting|\.[0-9a-f]{1,8}\.compacted)?")
"""Logs are carried separately. The files of an interrupted compaction are not carried: the logs
that they were to replace still exist."""


@dataclass(frozen=True)
class TargetDirectories:
    """The ``current/`` directories of a target, relative to it, in the source's order.

    `target_paths` maps those of the source to the target's. `index_moved`: the databases are put
    into the ledger directories, as db storage has an index directory for each.
    """

    ledger: tuple[Path, ...]
    index: tuple[Path, ...]
    journal: tuple[Path, ...]
    target_paths: dict[Path, Path]
    index_moved: bool

    @classmethod
    def of(cls, bookie: BookieDir, layout: Layout) -> TargetDirectories:
        """Return the target directories for a source that is rewritten in layout `layout`."""
        folders = bookie.folders
        all_currents = dict.fromkeys([*folders.ledger, *folders.index, *folders.journal])
        places = {current: _path_in_target(bookie, current) for current in all_currents}
        ledger, index, journal = (
            tuple(places[current] for current in currents)
            for currents in (folders.ledger, folders.index, folders.journal)
        )
        index_moved = layout == "rocksdb" and len(index) != len(ledger)
        if index_moved:  # a directory for the index alone would look as if it had the index
            kept = {*folders.ledger, *folders.journal}
            places = {current: path for current, path in places.items() if current in kept}
        return cls(ledger, ledger if index_moved else index, journal, places, index_moved)


def _path_in_target(bookie: BookieDir, current: Path) -> Path:
    """Return where a ``current/`` goes, relative to the target.

    A configured directory keeps its path relative to the conf file if it is below its folder,
    else its absolute path. Other directories keep their path relative to the source's top.
    """
    configured = bookie.folders.configured.get(current)
    if configured is None:
        source_root = Path(os.path.abspath(bookie.path))
        source_root = source_root.parent if source_root.name == "current" else source_root
        return Path(os.path.relpath(os.path.abspath(current), source_root))
    conf_dir = bookie.path.parent
    if configured.is_relative_to(conf_dir):
        return configured.relative_to(conf_dir) / "current"
    return Path(*configured.parts[1:]) / "current"


class OtherFile(NamedTuple):
    """A file to copy: its path, its path in the target, and its `new_content` if it is changed."""

    source: Path
    target: Path
    size: int
    new_content: bytes | None = None


def list_other_files(
    bookie: BookieDir, target: TargetDirectories, findings: list[Finding]
) -> Iterator[OtherFile]:
    """Yield the files of a bookie that are neither entry logs nor index, by directory and name.

    Adds a finding for each that is not carried: anything but a regular file, folders outside the
    index, unknown names among index files, interrupted compactions, an index that was not read.
    """
    for current, target_dir in target.target_paths.items():
        with convert_read_errors(current):
            dir_entries = sorted(os.scandir(current), key=lambda dir_entry: dir_entry.name)
        for dir_entry in dir_entries:
            name = dir_entry.name
            path = Path(dir_entry.path)
            reason = _reason_left_behind(bookie, name, dir_entry.is_dir())
            if reason is not None:
                if reason:
                    findings.append(Finding("oddity", f"not in the target: {reason}", str(path)))
                continue
            try:
                size = check_regular(path).st_size
            except CorruptionError as error:
                findings.append(Finding.of(error))
                continue
            data = _encode_cookie(bookie) if _is_changed_cookie(name, target) else None
            yield OtherFile(path, target_dir / name, size if data is None else len(data), data)
        if bookie.layout == "rocksdb" and has_index_files(current):
            detail = "not in the target: index files, of the index that was not read"
            findings.append(Finding("oddity", detail, str(current)))
        for stray_path in find_stray_files(current):
            detail = "not in the target: its name is not that of an index file"
            findings.append(Finding("oddity", detail, stray_path))


def _reason_left_behind(bookie: BookieDir, name: str, is_folder: bool) -> str | None:
    """Return why a file in a ``current/`` is not carried as it is, or None if it is.

    Returns "" without a finding: for logs and index, and what a bookie recreates (marker, cache).
    """
    if name in (MARKER_NAME, METADATA_CACHE):
        return ""
    if _LOG_NAME.fullmatch(name):
        return "" if name.endswith(".log") else "of an interrupted compaction"
    if name in DATABASE_NAMES:
        return "" if bookie.layout == "rocksdb" else "belongs to the index that was not read"
    if not is_folder:
        return None
    return "" if is_level_name(name) else "a folder unknown to bookies"


def _is_changed_cookie(name: str, target: TargetDirectories) -> bool:
    return target.index_moved and name == cookie_format.FILE_NAME


def _encode_cookie(bookie: BookieDir) -> bytes | None:
    """Return the source's cookie without index directories, or None if it has no cookie."""
    cookie = bookie.folders.cookie
    return None if cookie is None else cookie_format.encode(replace(cookie, index_dirs=None))


def encode_target_conf(bookie: BookieDir, target: TargetDirectories) -> bytes | None:
    """Return the `bk_server.conf` for the target, or None if the source was not given as one.

    Included files are inlined. Index directories are removed if the index is moved.
    """
    if not bookie.folders.configured:
        return None
    with convert_read_errors(bookie.path):
        return flatten_server_conf(bookie.path, "indexDirectories" if target.index_moved else "")
