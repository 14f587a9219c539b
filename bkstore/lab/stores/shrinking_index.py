"""An index of any class whose ledgers are deleted, with the calls of `ShrinkingRocks`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from bkstore.ids import LedgerId
from bkstore.lab.measuring.latencies_and_costs import measure_files
from bkstore.lab.stores.index_sides import IndexSide
from bkstore.testing.generators import locations


class ShrinkingIndex:
    """An index in its own directory; `settle` flushes it, and gives it nothing else to do."""

    def __init__(self, side: IndexSide, top: Path, entries_per_ledger: int) -> None:
        assert side.open_index is not None
        top.mkdir()
        self.top, self.entries_per_ledger = top, entries_per_ledger
        self._index = side.open_index(top, True)

    def put(self, ledger: LedgerId, seed: int) -> None:
        """Write a ledger's rows."""
        entry_locations = locations(self.entries_per_ledger, seed, log_id=ledger.ledger)
        self._index.put_many(ledger, np.arange(self.entries_per_ledger), entry_locations)

    def delete_ledger(self, ledger: LedgerId) -> None:
        """Delete a ledger, in the way of the index."""
        self._index.delete(ledger)

    def settle(self) -> None:
        """Flush."""
        self._index.flush()

    def scan(self) -> int:
        """Read all rows and return their number."""
        return sum(batch.entry_id.size for batch in self._index.scan())

    def find_last(self, ledger: LedgerId) -> object:
        """Return the last entry of a live ledger."""
        return self._index.last_entry(ledger)

    def find_first(self) -> object:
        """Return the first batch of a scan, of one row."""
        return next(self._index.scan(batch=1))

    def tombstones(self) -> int | None:
        """Return None: only RocksDB is known to have them."""
        return None

    def table_bytes(self) -> int:
        """Return the bytes of all its files."""
        return measure_files(self.top).bytes

    def close(self) -> None:
        """Close the index and delete its files."""
        self._index.close()
        shutil.rmtree(self.top)
