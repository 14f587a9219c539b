"""Copy files durably into a target, or hard-link entry logs there; list the files to copy.

Only entry logs may be linked: a bookie never writes into a log that it finds at startup (it begins
a new one, and unlinks old ones), so later writes in the target do not change the source's file.
Journals, marks, `lastId` and cookies are copied byte for byte, except a cookie with index
directories that the target's layout cannot have: it is changed, with a finding.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import Files
from bkstore.files.opening import check_regular, is_folder
from bkstore.files.os_errors import convert_read_errors, convert_write_errors
from bkstore.formats import cookie as cookie_format
from bkstore.index.api import Finding
from bkstore.index.hierarchical.file_tree import find_stray_files, has_index_files, is_level_name
from bkstore.index.scope_marker import MARKER_NAME
from bkstore.offline.rewrite.target_directories import TargetDirectories
from bkstore.storage.directories.layout import DATABASE_NAMES
from bkstore.storage.directories.unknown_files import METADATA_CACHE
from bkstore.storage.read_only.bookie_dir import BookieDir

_LOG_NAME = re.compile(r"[0-9a-f]{1,8}\.log(\.compacting|\.[0-9a-f]{1,8}\.compacted)?")
"""Logs are copied separately. The files of an interrupted compaction are not copied: the logs
that they were to replace still exist."""


def write_new_file(target: Path, data: bytes, files: Files) -> None:
    """Write a small file, durably."""
    with convert_write_errors(target):
        files.write_file(target, data)


# -- files that are neither log nor index


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

    Adds a finding for each that is not copied: anything but a regular file, folders outside the
    index, unknown names among index files, interrupted compactions, an index that was not read.
    """
    for current, target_dir in target.target_paths.items():
        with convert_read_errors(current):
            dir_entries = sorted(os.scandir(current), key=lambda dir_entry: dir_entry.name)
        for dir_entry in dir_entries:
            name = dir_entry.name
            path = Path(dir_entry.path)
            reason = _reason_left_behind(bookie, dir_entry)
            if reason is not None:
                if reason:  # "" if it needs no finding
                    findings.append(Finding("oddity", f"not in the target: {reason}", str(path)))
                continue
            try:
                size = check_regular(path).st_size
            except CorruptionError as error:
                findings.append(Finding.of(error))
                continue
            new_content = _new_content(bookie, name, target)  # None: it is copied as it is
            size = size if new_content is None else len(new_content)
            yield OtherFile(path, target_dir / name, size, new_content)
        if bookie.layout == "rocksdb" and has_index_files(current):
            detail = "not in the target: index files, of the index that was not read"
            findings.append(Finding("oddity", detail, str(current)))
        for stray_path in find_stray_files(current):
            detail = "not in the target: its name is not that of an index file"
            findings.append(Finding("oddity", detail, stray_path))


def _reason_left_behind(bookie: BookieDir, entry: os.DirEntry[str]) -> str | None:
    """Return why a file in a ``current/`` is not copied as it is, for a finding; None if it is.

    The reason is "", and there is no finding, for logs and the index, which other steps copy, and
    for what is made anew (scope marker, metadata cache).
    """
    name = entry.name
    if name in (MARKER_NAME, METADATA_CACHE):
        return ""
    if _LOG_NAME.fullmatch(name):
        return "" if name.endswith(".log") else "of an interrupted compaction"
    if name in DATABASE_NAMES:
        return "" if bookie.layout == "rocksdb" else "belongs to the index that was not read"
    if is_level_name(name):
        if is_folder(entry):
            return ""
        # The index reports it; a target with index files needs a folder in its place.
        return "" if bookie.layout == "idx" else "it is in the place of a folder of index files"
    return "a folder unknown to bookies" if is_folder(entry) else None


def _new_content(bookie: BookieDir, name: str, target: TargetDirectories) -> bytes | None:
    """Return a cookie without index directories if the index is moved; None for other files."""
    cookie = bookie.folders.cookie
    if cookie is None or not target.index_moved or name != cookie_format.FILE_NAME:
        return None
    return cookie_format.encode(replace(cookie, index_dirs=None))
