"""Assemble an index from finished table files or trees, by moving them.

They may come from any number of writers, in any order, as their keys do not overlap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bkstore.errors import BkstoreError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_read_errors, convert_sync_errors, convert_write_errors
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.hierarchical.file_tree import scan_trees
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import database_options
from bkstore.index.scope_marker import write_marker
from bkstore.offline.index_building.ledger_states import put_states
from bkstore.offline.index_building.row_writers import TableFile

_STATES_PER_FLUSH = {"idx": 1024, "rocksdb": 1 << 16}


def current_dirs(top: Path, directory_count: int) -> list[Path]:
    """Return the ``current/`` directories of a bookie with so many ledger directories at `top`, in
    the order of their numbers.

    >>> [str(path) for path in current_dirs(Path("b"), 2)]
    ['b/ledgers0/current', 'b/ledgers1/current']
    """
    if directory_count == 1:
        return [top / "current"]
    return [top / f"ledgers{dir_index}" / "current" for dir_index in range(directory_count)]


def build_index(
    layout: str,
    index_dirs: Sequence[Path],
    table_files: Sequence[TableFile],
    states: Mapping[LedgerId, LedgerState],
    files: Files = OS_FILES,
) -> None:
    """Build the index in these directories from the finished files of its rows, which are moved
    there, and the ledger states; durable on return.

    Raises `WriteFailed`, and `BkstoreError` if a file is missing or its size has changed.
    """
    for table_file in table_files:
        _check_table_file(layout, table_file)
    for dir_index, current in enumerate(index_dirs):
        with convert_write_errors(current):
            files.makedirs(current)
        # Directory number L mod n of n has the rows and the state of ledger L.
        dir_files = [table_file for table_file in table_files if table_file.directory == dir_index]
        count = len(index_dirs)
        dir_states = {
            id_: state for id_, state in states.items() if id_.ledger % count == dir_index
        }
        with _open_with_rows(layout, current, dir_files, dir_states, files) as index:
            put_states(index, dir_states, _STATES_PER_FLUSH[layout])


def _check_table_file(layout: str, table_file: TableFile) -> None:
    """Raise unless the file exists as its writer left it."""
    path = Path(table_file.path)
    exists = path.is_dir() if layout == "idx" else path.is_file()
    if not exists or (layout != "idx" and path.stat().st_size != table_file.bytes):
        raise BkstoreError(
            f"{path}: does not exist as its writer left it: the target must be on storage that "
            "the driver and all executors share"
        )


def _open_with_rows(
    layout: str,
    current: Path,
    table_files: Sequence[TableFile],
    states: Iterable[LedgerId],
    files: Files,
) -> EntryIndex:
    """Move the files into a ``current/``, and open its index for writing.

    `states` are the ledgers whose states will be added. If one of them or of the files has a scope,
    databases for such ledgers are made, too.
    """
    if layout == "idx":
        for table_file in table_files:
            _move_tree(Path(table_file.path) / "current", current, files)
        return HierarchicalIndex(current, writable=True, files=files)
    has_scope = any(table_file.has_scope for table_file in table_files) or any(
        ledger_id.scope for ledger_id in states
    )
    if has_scope:
        write_marker(current, files)
    # Ledgers with a scope have databases of their own.
    for suffix in ("", "-128") if has_scope else ("",):
        path = current / f"locations{suffix}"
        with closing(Database(path, database_options("locations"), files=files)) as database:
            for table_file in table_files:
                if table_file.has_scope == bool(suffix):
                    database.ingest(Path(table_file.path))
        # Both databases of a pair are always made: one alone would look like a crash.
        Database(current / f"ledgers{suffix}", database_options("ledgers"), files=files).close()
    return RocksIndex(current, writable=True, files=files)


def _move_tree(source: Path, current: Path, files: Files) -> None:
    """Move the index files of a tree below `source` to `current`, which has none of their ledgers,
    durably."""
    with convert_read_errors(source):
        tree = scan_trees([source])
    changed: set[Path] = set()
    with convert_write_errors(current):
        for path in tree.files.values():
            target = current / os.path.relpath(path, source)
            _make_folders(target.parent, changed, files)
            files.replace(path, target)
            changed.add(target.parent)
        if any(ledger_id.scope for ledger_id in tree.files):
            write_marker(current, files)
    for folder in sorted(changed):
        with convert_sync_errors(folder):
            files.sync_dir(folder)


def _make_folders(folder: Path, changed: set[Path], files: Files) -> None:
    """Make a folder and its missing parents; add each folder with a new entry to `changed`."""
    if not folder.is_dir():
        _make_folders(folder.parent, changed, files)
        files.mkdir(folder)
        changed.add(folder.parent)
