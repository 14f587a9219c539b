"""RocksDB whose ledgers are deleted: by range or by row, compacted, rebuilt."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from bkstore.ids import LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import entry_keys, ledger_range, values
from bkstore.index.rocks.options import location_options
from bkstore.testing.generators import locations

__all__ = ["ShrinkingRocks"]


class ShrinkingRocks:
    """A `locations` database in a folder of its own, with a small write buffer."""

    def __init__(self, top: Path, per_ledger: int, buffer: int) -> None:
        self.top, self.per_ledger, self.buffer, self.number = top, per_ledger, buffer, 0
        self.database = self._opened()

    def _opened(self) -> Database:
        options = location_options()
        options.set_write_buffer_size(self.buffer)
        options.set_target_file_size_base(self.buffer)
        options.set_max_bytes_for_level_base(4 * self.buffer)
        return Database(self.top / f"{self.number}" / "locations", options)

    def put(self, ledger: LedgerId, seed: int) -> None:
        """Write a ledger's rows."""
        places = locations(self.per_ledger, seed, log_id=ledger.ledger)
        keys = entry_keys(ledger, np.arange(self.per_ledger))
        self.database.put_list(keys, values(places), self.per_ledger)

    def delete_by_range(self, ledger: LedgerId) -> None:
        """Delete a ledger with one range tombstone, as a bookie does."""
        self.database.delete_range(*ledger_range(ledger))

    def delete_by_row(self, ledger: LedgerId) -> None:
        """Delete a ledger with a tombstone for each row."""
        for key in entry_keys(ledger, np.arange(self.per_ledger)):
            self.database.delete(key)

    def compact(self) -> None:
        """Merge all levels (`compactRange`)."""
        self.database.compact()

    def rebuild(self) -> None:
        """Write the rows that are there into a new database, and drop the old one."""
        old, before = self.database, self.top / f"{self.number}"
        self.number += 1
        self.database = self._opened()
        for keys, found in old.items(b"", b"\xff" * 16, 16, 1 << 16):
            rows = np.ascontiguousarray(keys).view("V16").ravel().tolist()
            self.database.put_list(rows, found.astype(">i8").view("V8").tolist(), 1 << 16)
        old.close()
        shutil.rmtree(before)

    def settle(self) -> None:
        """Bring what is in memory into files: by closing and opening again."""
        self.database.close()
        self.database = self._opened()
