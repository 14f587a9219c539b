"""Opening the RocksDB indexes of a bookie's directories as one, in the configured order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.errors import UnsupportedLayout
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.directories.layout import BookieFolders, check_order, order_by_residue

if TYPE_CHECKING:
    from bkstore.index.api import EntryIndex


def open_rocks(path: Path, folders: BookieFolders, live: bool = False) -> EntryIndex:
    """Return the databases below the index directories, as one index.

    Puts the directories of `folders` into the order that the ledgers in them tell, where only
    names do. Raises `UnsupportedLayout` where directories are missing or the order cannot be
    told, and what opening a database raises.
    """
    if len(folders.ledger) != len(folders.index):
        raise UnsupportedLayout(
            f"{path}: {len(folders.index)} index directories, {len(folders.ledger)} "
            "ledger directories; db storage pairs them by position"
        )
    parts: list[RocksIndex] = []
    try:
        parts.extend(RocksIndex(current, live=live) for current in folders.index)
        if len(parts) > 1:
            parts = _in_order(path, folders, parts)
    except BaseException:
        for part in parts:
            part.close()
        raise
    return parts[0] if len(parts) == 1 else PartitionedIndex(parts)


def _in_order(path: Path, folders: BookieFolders, parts: list[RocksIndex]) -> list[RocksIndex]:
    """Return the parts in configured order, and put the folders into it."""
    if folders.cookie and len(folders.cookie.ledger_dirs) != len(parts):
        raise UnsupportedLayout(
            f"{path}: the cookie names {len(folders.cookie.ledger_dirs)} ledger "
            f"directories, {len(parts)} are here; db storage needs all of them, or one alone"
        )
    held = [[name.ledger for name in part.ledgers()] for part in parts]
    names = [str(current.parent) for current in folders.index]
    if folders.ordered != "names":
        check_order(names, held, folders.ordered)
        return parts
    order = order_by_residue(names, held)
    # Separate ledger and index directories are pairs by position, here in name order.
    folders.index = [folders.index[at] for at in order]
    folders.ledger = [folders.ledger[at] for at in order]
    return [parts[at] for at in order]
