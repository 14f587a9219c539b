"""RocksDB whose ledgers are deleted: by range or by row, compacted, rebuilt.

What is in its files depends on what was done and on nothing else: no flush and no compaction
begins by itself while rows are written and deleted, where it would be a matter of time which
tables it finds. A flush comes after so many rows; RocksDB compacts, as its rules say, in `settle`.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import numpy as np

from bkstore.ids import LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import entry_keys, ledger_range, values
from bkstore.index.rocks.options import location_options
from bkstore.testing.generators import locations

_ROW = 24  # bytes of a key and a location
_LEAST = 64 << 10
_TOP = b"\xff" * 16
_DELETIONS = re.compile(r"# deletions=(\d+)")  # those of ranges are among them
_UNDER_WAY = ("compaction-pending", "num-running-compactions")
_LONGEST = 600  # seconds of compactions


class _Steered(Database):
    """A database that flushes and compacts when it is told to."""

    def flush(self) -> None:
        """Bring what is in memory into a table."""
        with self._changing() as database:
            database.flush()

    def set_compacting(self, compacting: bool) -> None:
        """Let compactions begin, or let none begin."""
        with self._changing() as database:
            database.set_options({"disable_auto_compactions": "false" if compacting else "true"})


class ShrinkingRocks:
    """A `locations` database in a folder of its own, whose tables have `buffered` rows at first."""

    def __init__(self, top: Path, per_ledger: int, buffered: int) -> None:
        self.top, self.per_ledger, self.buffered = top, per_ledger, buffered
        self.number = self.waiting = 0
        self.database = self._opened()

    def _opened(self) -> _Steered:
        options, size = location_options(), max(self.buffered * _ROW, _LEAST)
        options.set_write_buffer_size(max(64 << 20, 16 * size))  # flushes are by rows
        options.set_target_file_size_base(size)
        options.set_max_bytes_for_level_base(4 * size)
        options.set_disable_auto_compactions(True)
        options.set_max_background_jobs(2)  # one that flushes, one that compacts
        return _Steered(self.top / f"{self.number}" / "locations", options)

    def put(self, ledger: LedgerId, seed: int) -> None:
        """Write a ledger's rows."""
        places = locations(self.per_ledger, seed, log_id=ledger.ledger)
        keys = entry_keys(ledger, np.arange(self.per_ledger))
        self.database.put_list(keys, values(places), self.per_ledger)
        self._count(self.per_ledger)

    def delete_by_range(self, ledger: LedgerId) -> None:
        """Delete a ledger with one range tombstone, as a bookie does."""
        self.database.delete_range(*ledger_range(ledger))
        self._count(1)

    def delete_by_row(self, ledger: LedgerId) -> None:
        """Delete a ledger with a tombstone for each row."""
        for key in entry_keys(ledger, np.arange(self.per_ledger)):
            self.database.delete(key)
        self._count(self.per_ledger)

    def _count(self, rows: int) -> None:
        self.waiting += rows
        if self.waiting >= self.buffered:
            self.flush()

    def flush(self) -> None:
        """Bring what is in memory into a table."""
        self.database.flush()
        self.waiting = 0

    def settle(self) -> None:
        """Flush, and let RocksDB compact until it has nothing to do."""
        self.flush()
        self.database.set_compacting(True)
        until = time.monotonic() + _LONGEST
        while any(self.database.property(name) != "0" for name in _UNDER_WAY):
            if time.monotonic() > until:
                raise RuntimeError(f"{self.top}: compactions take more than {_LONGEST} seconds")
            time.sleep(0.001)
        self.database.set_compacting(False)

    def compact(self) -> None:
        """Merge all levels (`compactRange`)."""
        self.database.compact()

    def rebuild(self) -> None:
        """Write the rows that are there into a new database, and drop the old one."""
        old, before = self.database, self.top / f"{self.number}"
        self.number += 1
        self.database = self._opened()
        for keys, found in old.items(b"", _TOP, 16, 1 << 16):
            rows = np.ascontiguousarray(keys).view("V16").ravel().tolist()
            self.database.put_list(rows, found.astype(">i8").view("V8").tolist(), 1 << 16)
        old.close()
        shutil.rmtree(before)

    def scan(self) -> int:
        """Read all rows; return how many there are."""
        return sum(len(keys) for keys, _ in self.database.items(b"", _TOP, 16, 1 << 16))

    def tombstones(self) -> int:
        """Return how many tombstones the tables have, those of ranges and of rows."""
        found = _DELETIONS.search(self.database.property("aggregated-table-properties"))
        return int(found[1]) if found is not None else 0

    def table_bytes(self) -> int:
        """Return the bytes of the tables; of those that a compaction replaced, none."""
        return int(self.database.property("live-sst-files-size"))

    def close(self) -> None:
        """Close it, and take its files away."""
        self.database.close()
        shutil.rmtree(self.top)
