"""The size of the index on disk, and how many rows are in it."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import check_regular, is_regular_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.idxfile import HEADER_SIZE
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.readable_database import DatabaseSizes
from bkstore.storage.read_only.bookie_dir import BookieDir

_BLOCK_BYTES = 512  # the unit of `st_blocks`, in bytes
_LOCATION_BYTES = 8


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The index files of one directory ("idx"), or one RocksDB database by its name.

    `file_bytes` is the length of the files, `disk_bytes` the space allocated to them, which is less
    if they have holes. `rows` is the number of rows of known ledgers (in "ledgers": of ledgers),
    None if one could not be read. `row_bytes` counts 8 for each row of an index file, and key and
    value (24, or 32 outside scope 0) for each row of "locations". `pages` is the number of pages of
    index files. `sizes` are the sizes that RocksDB reports.
    """

    dir_index: int
    part: str
    path: str
    files: int
    file_bytes: int
    disk_bytes: int
    rows: int | None
    row_bytes: int | None
    pages: int | None = None
    sizes: DatabaseSizes | None = None

    @property
    def dead_rows(self) -> int | None:
        """Rows in tables of unknown ledgers, or overwritten; None if not known. Up to
        `sizes.waiting` too low if live rows are only in the write-ahead log."""
        if self.sizes is None or self.rows is None:
            return None
        return max(self.sizes.table_entries - self.sizes.tombstones - self.rows, 0)


def index_parts(
    bookie: BookieDir, entry_counts: Mapping[LedgerId, int | None], page_size: int
) -> Iterator[IndexPart]:
    """Yield an index's parts by directory, given the entry counts; a `stat` a file, no row read."""
    index = bookie.index
    if isinstance(index, HierarchicalIndex):
        yield from _index_file_parts(bookie, index, entry_counts, page_size)
        return
    parts = index.parts if isinstance(index, PartitionedIndex) else [index]
    for dir_index, part in enumerate(parts):
        assert isinstance(part, RocksIndex)
        for sizes in part.sizes():
            yield _database_part(dir_index, sizes, part, entry_counts)


def _index_file_parts(
    bookie: BookieDir,
    index: HierarchicalIndex,
    entry_counts: Mapping[LedgerId, int | None],
    page_size: int,
) -> Iterator[IndexPart]:
    """Yield the index files of each directory, summed. The rows of a directory are None if the
    entries of one of its ledgers could not be counted."""
    index_dirs = [str(index_dir) + os.sep for index_dir in bookie.folders.index]
    # By directory: files, bytes of files, bytes on disk, rows, pages.
    sums: list[list[int]] = [[0, 0, 0, 0, 0] for _ in index_dirs]
    has_unread = [False] * len(index_dirs)
    for ledger_id, rows in entry_counts.items():
        path = index.path(ledger_id)
        if path is None:  # removed since the listing, which `check_unchanged` reports
            continue
        dir_index = next(n for n, index_dir in enumerate(index_dirs) if path.startswith(index_dir))
        try:
            with convert_read_errors(path):
                stat = check_regular(path)
        except CorruptionError:  # reading its entries has reported it
            has_unread[dir_index] = True
            continue
        pages = -(-max(stat.st_size - HEADER_SIZE, 0) // page_size)  # rounded up
        file_counts = (1, stat.st_size, stat.st_blocks * _BLOCK_BYTES, rows or 0, pages)
        sums[dir_index] = list(map(operator.add, sums[dir_index], file_counts))
        has_unread[dir_index] |= rows is None
    for dir_index, (files, file_bytes, disk_bytes, rows, pages) in enumerate(sums):
        row_counts = (None, None) if has_unread[dir_index] else (rows, _LOCATION_BYTES * rows)
        sizes = (files, file_bytes, disk_bytes, *row_counts, pages)
        yield IndexPart(dir_index, "idx", str(bookie.folders.index[dir_index]), *sizes)


def _database_part(
    dir_index: int,
    sizes: DatabaseSizes,
    index: EntryIndex,
    entry_counts: Mapping[LedgerId, int | None],
) -> IndexPart:
    """Return the part for one RocksDB database. One of "locations" has a row for each entry of its
    ledgers, as counted in `entry_counts` (None: unreadable); one of "ledgers" a row for each. Rows
    are None if damage hides some ledgers."""
    path = sizes.path
    has_scoped_keys = path.name.endswith("-128")  # its ledgers are those outside scope 0
    listing = index.list_readable_ledgers()
    has_unknown = any(bool(unknown.last.scope) == has_scoped_keys for unknown in listing.unknown)
    ledger_ids = [n for n in listing.ledgers if bool(n.scope) == has_scoped_keys]
    rows: int | None = None if has_unknown else len(ledger_ids)
    row_bytes: int | None = None
    if path.name.startswith("locations"):
        # A ledger in a wrong directory is not known: no bookie reads it there.
        counts = [entry_counts[ledger_id] for ledger_id in ledger_ids if ledger_id in entry_counts]
        known = [count for count in counts if count is not None]
        is_complete = len(known) == len(counts) and not has_unknown
        rows = sum(known) if is_complete else None
        key_bytes = 24 if has_scoped_keys else 16
        row_bytes = None if rows is None else rows * (key_bytes + _LOCATION_BYTES)
    # What its files take is known even if its rows are not.
    files = _file_sizes(path)  # (0, 0) below: there may be none
    file_bytes, disk_bytes = (sum(sizes_of_files) for sizes_of_files in zip((0, 0), *files))
    stored = (len(files), file_bytes, disk_bytes, rows, row_bytes)
    return IndexPart(dir_index, path.name, str(path), *stored, sizes=sizes)


def _file_sizes(folder: Path) -> list[tuple[int, int]]:
    """Return (length, bytes on disk) of each file directly in a folder."""
    with convert_read_errors(folder), os.scandir(folder) as entries:
        stats = [entry.stat() for entry in entries if is_regular_file(entry)]
    return [(stat.st_size, stat.st_blocks * _BLOCK_BYTES) for stat in stats]
