"""Blocks that were decoded last: short reads of neighboring keys need the same ones again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from bkstore.formats.rocksdb.table.rows import VersionedRows

BlockKey = tuple[Path, int, int]
"""A table file, the number of a data block in it, and the words of its keys."""


class BlockCache:
    """The rows of the `max_rows` rows' worth of blocks that were read last. Thread-safe.

    >>> cache = BlockCache(max_rows=1)
    >>> cache.get((Path("000008.sst"), 0, 2)) is None
    True
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._rows: OrderedDict[BlockKey, VersionedRows] = OrderedDict()
        self._row_count = 0

    def get(self, key: BlockKey) -> VersionedRows | None:
        """Return the rows of a block, None if it is not here."""
        with self._lock:
            rows = self._rows.get(key)
            if rows is not None:
                self._rows.move_to_end(key)
            return rows

    def put(self, key: BlockKey, rows: VersionedRows) -> None:
        """Keep the rows of a block. While there are too many rows, drop those of the block that was
        not used for the longest time; the last block stays, however large."""
        with self._lock:
            if key not in self._rows:
                self._row_count += len(rows)
            self._rows[key] = rows
            while self._row_count > self._max_rows and len(self._rows) > 1:
                _, dropped = self._rows.popitem(last=False)
                self._row_count -= len(dropped)
