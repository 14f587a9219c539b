"""Opens the RocksDB indexes of a bookie's directories as one, in the configured order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.errors import UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.directories.layout import BookieFolders, check_order, order_by_residue

if TYPE_CHECKING:
    from bkstore.index.api import EntryIndex


def open_rocks(path: Path, folders: BookieFolders, live: bool = False) -> EntryIndex:
    """Open the databases of the index directories as one index. Ledger L is in directory L mod n of
    the configured order; if neither a conf nor a cookie gives it, the ledgers found do, and
    `folders` is reordered. Raises `UnsupportedLayout` if directories are missing or their order is
    unclear, and the errors of opening a database."""
    if len(folders.ledger) != len(folders.index):
        counts = f"{len(folders.index)} index directories, {len(folders.ledger)} ledger directories"
        raise UnsupportedLayout(f"{path}: {counts}; db storage pairs them by position")
    indexes: list[RocksIndex] = []
    try:
        indexes.extend(RocksIndex(current, live=live) for current in folders.index)
        if len(indexes) > 1:
            indexes = _put_in_order(path, folders, indexes)
    except BaseException:
        for index in indexes:
            index.close()
        raise
    return indexes[0] if len(indexes) == 1 else PartitionedIndex(indexes)


def _put_in_order(
    path: Path, folders: BookieFolders, indexes: list[RocksIndex]
) -> list[RocksIndex]:
    """Return the indexes in configured order. If that comes from a conf or cookie, only check it;
    else derive it from the ledgers in the databases, and reorder `folders` alike."""
    if folders.cookie and len(folders.cookie.ledger_dirs) != len(indexes):
        raise UnsupportedLayout(
            f"{path}: the cookie names {len(folders.cookie.ledger_dirs)} ledger "
            f"directories, {len(indexes)} are here; db storage needs all of them or a single one"
        )
    ledgers_by_dir = [[ledger_id.ledger for ledger_id in _list_some(index)] for index in indexes]
    names = [str(current.parent) for current in folders.index]
    if folders.order_source != "names":
        check_order(names, ledgers_by_dir, folders.order_source)
        return indexes
    order = order_by_residue(names, ledgers_by_dir)
    # Separate ledger and index directories are pairs by position, here in name order.
    folders.index = [folders.index[position] for position in order]
    folders.ledger = [folders.ledger[position] for position in order]
    return [indexes[position] for position in order]


def _list_some(index: RocksIndex) -> list[LedgerId]:
    """Return the ledgers of a directory: if damage hides some, the others; if it hides all, those
    with entries, or else raise what hides them."""
    listing = index.list_readable_ledgers()
    if not listing.unknown or listing.ledgers:
        return listing.ledgers
    return index.ledgers_with_entries() or index.ledgers()
