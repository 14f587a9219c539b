"""The missing parts of a bookie: directories that its cookie names, and journals.

An entry without a trace on the other disks may have been there, and may have been acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from bkstore.counts import format_count, join_words
from bkstore.errors import CorruptionError
from bkstore.index.api import Finding
from bkstore.storage.directories.layout import BookieFolders
from bkstore.storage.journal.last_mark import journal_name, last_mark_name, read_last_mark
from bkstore.storage.read_only.bookie_dir import BookieDir


def find_missing_parts(directory: BookieDir) -> Iterator[Finding]:
    """Yield a finding for each part of a bookie that must have existed and is not here.

    These are directories of the cookie (without one: the ledger directories, if only journals are
    here); all journals, if there is anything else, as a bookie writes its journal first and never
    deletes the newest file; and the journal that a last mark names, where a replay would start.
    Reads names and the marks. Raises `CorruptionError` if a directory cannot be listed.
    """
    folders = directory.folders
    yield from _find_missing_directories(folders)
    holdings = folders.holdings.values()
    if folders.cookie is None and holdings and all(kinds == {"journal"} for kinds in holdings):
        detail = "journals only: what was flushed before them is lost"
        yield Finding("damage", detail, str(folders.journal[0]))
    journal_ids = {int(path.stem, 16) for path in directory.journals}
    has_more = any(kinds - {"journal"} for kinds in holdings)
    if not journal_ids and (has_more or directory.entry_logs):
        detail = "no journal is here: entries that were only there are lost"
        yield Finding("damage", detail, str(folders.ledger[0]))
        return
    for index in _mark_indexes(folders):
        try:
            mark = read_last_mark(folders.ledger, index)
        except CorruptionError:
            continue  # the mark is not needed: journals are read from their start
        if mark.journal_id and mark.journal_id not in journal_ids:
            journal = journal_name(mark.journal_id)
            detail = f"journal {journal} is missing: {last_mark_name(index)} names it"
            yield Finding("damage", detail, str(folders.ledger[0]))


def _find_missing_directories(folders: BookieFolders) -> Iterator[Finding]:
    """Yield a finding if fewer directories are here than the cookie names."""
    if folders.cookie is None:
        return
    cookie = folders.cookie
    named = {*cookie.ledger_dirs, *cookie.journal_dirs, *(cookie.index_dirs or ())}
    present = {*folders.ledger, *folders.index, *folders.journal}
    if len(present) < len(named):
        # Copies may have other names: only those that occur in no path are surely missing.
        components = {each.parent.name for each in present}
        missing = sorted(path for path in named if components.isdisjoint(Path(path).parts))
        which = f" (not {join_words(missing)})" if missing else ""
        directories = format_count(len(named), "directory", "directories")
        detail = f"{len(present)} of the {directories} of the cookie are here{which}"
        yield Finding("damage", detail, str(folders.ledger[0]))


def _mark_indexes(folders: BookieFolders) -> Sequence[int | None]:
    """Return the numbers of the journals that have a last mark; None for a single journal."""
    indexes: list[int | None] = []
    for index in count():
        mark_file = last_mark_name(index)
        if not any(os.path.lexists(current / mark_file) for current in folders.ledger):
            break
        indexes.append(index)
    is_single = folders.cookie is not None and len(folders.cookie.journal_dirs) == 1
    return [None] if is_single or not indexes else indexes
