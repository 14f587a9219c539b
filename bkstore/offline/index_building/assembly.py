"""Putting an index together from finished pieces: table files, or trees of index files.

The pieces come from any number of writers, in any order: their keys do not overlap. They are
moved, not copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bkstore.errors import BkstoreError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import readable, syncing, writing
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


def currents(top: Path, directories: int) -> list[Path]:
    """Return the ``current/`` directories of a bookie at `top`, in the order of its ledgers.

    >>> [str(path) for path in currents(Path("b"), 2)]
    ['b/ledgers0/current', 'b/ledgers1/current']
    """
    if directories == 1:
        return [top / "current"]
    return [top / f"ledgers{at}" / "current" for at in range(directories)]


def build(
    to: str,
    currents: Sequence[Path],
    made: Sequence[TableFile],
    states: Mapping[LedgerId, LedgerState],
    files: Files = OS_FILES,
) -> None:
    """Make the index of the pieces and the states in these directories; durable at return.

    Raises `WriteFailed` where the system refuses, `BkstoreError` for a piece that is not there
    as its writer said.
    """
    for piece in made:
        _check_piece(to, piece)
    for number, current in enumerate(currents):
        with writing(current):
            files.makedirs(current)
        here = [piece for piece in made if piece.directory == number]
        mine = {
            ledger: state
            for ledger, state in states.items()
            if ledger.ledger % len(currents) == number
        }
        with _open_filled(to, current, here, mine, files) as index:
            put_states(index, mine, _STATES_PER_FLUSH[to])


def _check_piece(to: str, piece: TableFile) -> None:
    path = Path(piece.path)
    there = path.is_dir() if to == "idx" else path.is_file()
    if not there or (to != "idx" and path.stat().st_size != piece.bytes):
        raise BkstoreError(
            f"{path}: is not here as its writer left it: the target must lie on storage that "
            "the driver and all executors share"
        )


def _open_filled(
    to: str,
    current: Path,
    made: Sequence[TableFile],
    states: Iterable[LedgerId],
    files: Files,
) -> EntryIndex:
    """Return the writable index of a ``current/`` that has the pieces' rows.

    `states` are the ledgers that it is going to have: whether any has a scope counts.
    """
    if to == "idx":
        for piece in made:
            _move_tree(Path(piece.path) / "current", current, files)
        return HierarchicalIndex(current, writable=True, files=files)
    wide = any(piece.wide for piece in made) or any(name.scope for name in states)
    if wide:
        write_marker(current, files)
    for kind in ("", "-128") if wide else ("",):
        path = current / f"locations{kind}"
        with closing(Database(path, database_options("locations"), files=files)) as database:
            for piece in made:
                if piece.wide == bool(kind):
                    database.ingest(Path(piece.path))
        # Both of a pair are made, whatever they hold: one alone is what a crash leaves.
        Database(current / f"ledgers{kind}", database_options("ledgers"), files=files).close()
    return RocksIndex(current, writable=True, files=files)


def _move_tree(source: Path, current: Path, files: Files) -> None:
    """Move the index files of one tree into another; their ledgers are different ones."""
    with readable(source):
        tree = scan_trees([source])
    changed: set[Path] = set()
    with writing(current):
        for path in tree.files.values():
            target = current / os.path.relpath(path, source)
            _make_folders(target.parent, changed, files)
            files.replace(path, target)
            changed.add(target.parent)
        if any(name.scope for name in tree.files):
            write_marker(current, files)
    for folder in sorted(changed):
        with syncing(folder):
            files.sync_dir(folder)


def _make_folders(folder: Path, changed: set[Path], files: Files) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent, changed, files)
        files.mkdir(folder)
        changed.add(folder.parent)
