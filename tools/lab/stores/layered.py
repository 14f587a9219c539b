"""A memtable over RocksDB: what a bookie's memory has that its disk has not yet."""

from __future__ import annotations

import numpy as np

from bkstore.ids import Int64Array
from bkstore.index.api import LedgerLike
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex
from bkstore.index.rocks import RocksIndex


class Layered(LayeredSource):
    """A memtable over RocksDB, asked for locations as well, as a storage asks its two."""

    top: MemtableIndex
    below: RocksIndex

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry: the memtable's, else the one on disk."""
        return self.top.get(ledger, entry) or self.below.get(ledger, entry)

    def get_many(self, ledger: LedgerLike, entries: Int64Array) -> Int64Array:
        """Return the locations of many entries; only what memory lacks is asked of the disk."""
        found = self.top.get_many(ledger, entries)
        absent = np.flatnonzero(found == 0)
        if absent.size:
            found[absent] = self.below.get_many(ledger, entries[absent])
        return found
