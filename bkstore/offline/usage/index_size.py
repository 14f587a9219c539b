"""What the index takes on the disk, beside the rows that are in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bkstore.files.os_errors import readable
from bkstore.formats.idxfile import HEADER_SIZE
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.rows import DatabaseSizes
from bkstore.storage.read_only.bookie_dir import BookieDir

_BLOCK = 512
"""What `st_blocks` counts in."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The index files of one directory ("idx"), or one RocksDB database by its name.

    `file_bytes` are as long as the files are, `disk_bytes` what the system gave them: less where
    they have holes. `rows` is how many rows of known ledgers there are (in "ledgers" the ledgers),
    None if one could not be read; `row_bytes` are 8 for each row of an index file, key and value
    (24, or 32 outside scope 0) for each of "locations". `pages` are the pages of index files.
    `sizes` is what RocksDB says of a database.
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
        """Rows in tables that are of no known ledger, or were put twice; None if not known.

        What is in the tables without tombstones and without the rows that are live; up to
        `sizes.waiting` less, where rows are in the write-ahead log only.
        """
        if self.sizes is None or self.rows is None:
            return None
        return max(self.sizes.table_entries - self.sizes.tombstones - self.rows, 0)


def index_parts(
    bookie: BookieDir, entries: Mapping[LedgerId, int | None], page_size: int
) -> Iterator[IndexPart]:
    """Yield the parts of an index, by directory; `entries` has how many each known ledger has.

    Cost: a `stat` a file, and RocksDB's properties; no row is read.
    """
    index = bookie.index
    if isinstance(index, HierarchicalIndex):
        yield from _index_files(bookie, index, entries, page_size)
        return
    parts = index.parts if isinstance(index, PartitionedIndex) else [index]
    for number, part in enumerate(parts):
        assert isinstance(part, RocksIndex)
        for sizes in part.sizes():
            yield _database(number, sizes, part, entries)


def _index_files(
    bookie: BookieDir,
    index: HierarchicalIndex,
    entries: Mapping[LedgerId, int | None],
    page_size: int,
) -> Iterator[IndexPart]:
    currents = [str(current) + os.sep for current in bookie.folders.index]
    counts: list[list[int]] = [[0, 0, 0, 0, 0] for _ in currents]
    unread = [False] * len(currents)
    for name, rows in entries.items():
        path = index.path(name)
        if path is None:  # gone since the listing: `check_unchanged` tells
            continue
        at = next(n for n, current in enumerate(currents) if path.startswith(current))
        with readable(path):
            found = os.stat(path)
        pages = -(-max(found.st_size - HEADER_SIZE, 0) // page_size)
        told = (1, found.st_size, found.st_blocks * _BLOCK, rows or 0, pages)
        counts[at] = [a + b for a, b in zip(counts[at], told)]
        unread[at] |= rows is None
    for at, (files, long, disk, rows, pages) in enumerate(counts):
        known = None if unread[at] else rows
        row_bytes = None if unread[at] else 8 * rows
        place = str(bookie.folders.index[at])
        yield IndexPart(at, "idx", place, files, long, disk, known, row_bytes, pages)


def _database(
    number: int, sizes: DatabaseSizes, index: EntryIndex, entries: Mapping[LedgerId, int | None]
) -> IndexPart:
    path = sizes.path
    wide = path.name.endswith("-128")
    names = [name for name in index.ledgers() if bool(name.scope) == wide]
    rows: int | None = len(names)
    row_bytes: int | None = None
    if path.name.startswith("locations"):
        counts = [entries[name] for name in names]
        known = [count for count in counts if count is not None]
        rows = sum(known) if len(known) == len(counts) else None
        row_bytes = None if rows is None else rows * (32 if wide else 24)
    files = _files(path)
    long, disk = (sum(each) for each in zip((0, 0), *files))
    return IndexPart(
        number, path.name, str(path), len(files), long, disk, rows, row_bytes, None, sizes
    )


def _files(folder: Path) -> list[tuple[int, int]]:
    """Return length and bytes on disk of each file directly in a folder."""
    with readable(folder), os.scandir(folder) as entries:
        stats = [entry.stat() for entry in entries if entry.is_file()]
    return [(found.st_size, found.st_blocks * _BLOCK) for found in stats]
