"""A RocksDB whose ledgers are deleted by range or by row, and which is compacted or rebuilt. The
contents of its files are reproducible: no flush and no compaction starts in the background while
rows are written and deleted, because timing would decide which tables it includes. A flush follows
each `rows_per_table` rows; RocksDB compacts, by its own rules, in `settle` only."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import numpy as np

from bkstore.ids import LedgerId
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import encode_locations, entry_keys, ledger_range
from bkstore.index.rocks.options import location_options
from bkstore.lab.stores.tuned_rocks import Change
from bkstore.testing.generators import locations

_KEY_WORDS = 2
_ROW_BYTES = 24  # bytes of a key and a location
_ROWS_PER_BATCH = 1 << 16
_MIN_TABLE_BYTES = 64 << 10
_LAST_KEY = b"\xff" * 16
_DELETIONS_PATTERN = re.compile(r"# deletions=(\d+)")  # including those of ranges
_COMPACTION_PROPERTIES = ("compaction-pending", "num-running-compactions")
_MAX_COMPACTION_SECONDS = 600


class _ManualDatabase(Database):
    def flush(self) -> None:
        with self._write_handle() as database:
            database.flush()

    def set_compacting(self, compacting: bool) -> None:
        with self._write_handle() as database:
            database.set_options({"disable_auto_compactions": "false" if compacting else "true"})


class ShrinkingRocks:
    """A `locations` database in its own directory, with a bookie's options and `changes` of them; a
    flush writes `rows_per_table` rows."""

    def __init__(
        self,
        top: Path,
        entries_per_ledger: int,
        rows_per_table: int,
        changes: tuple[Change, ...] = (),
    ) -> None:
        """Open an empty database below `top`, whose table files have about `rows_per_table` rows.
        `changes` are applied to a bookie's options of RocksDB."""
        self.top, self.rows_per_table, self._changes = top, rows_per_table, changes
        self.entries_per_ledger = entries_per_ledger
        self.generation = self.unflushed_rows = 0
        self.database = self._open()

    def _open(self) -> _ManualDatabase:
        """Open the database of the current generation. It compacts only in `settle`, and its table
        files and levels are small, so that a short experiment has as many as a large bookie."""
        options = location_options()
        table_bytes = max(self.rows_per_table * _ROW_BYTES, _MIN_TABLE_BYTES)
        options.set_write_buffer_size(max(64 << 20, 16 * table_bytes))  # flushes are by rows
        options.set_target_file_size_base(table_bytes)
        options.set_max_bytes_for_level_base(4 * table_bytes)
        options.set_disable_auto_compactions(True)
        options.set_max_background_jobs(2)  # one flushes, one compacts
        for change in self._changes:
            change(options)
        return _ManualDatabase(self.top / f"{self.generation}" / "locations", options)

    def put(self, ledger: LedgerId, seed: int) -> None:
        """Write a ledger's rows."""
        entry_locations = locations(self.entries_per_ledger, seed, log_id=ledger.ledger)
        keys = entry_keys(ledger, np.arange(self.entries_per_ledger))
        self.database.put_list(keys, encode_locations(entry_locations), self.entries_per_ledger)
        self._flush_if_full(self.entries_per_ledger)

    def delete_by_range(self, ledger: LedgerId) -> None:
        """Delete a ledger with one range tombstone, as a bookie does."""
        self.database.delete_range(*ledger_range(ledger))
        self._flush_if_full(1)

    def delete_by_row(self, ledger: LedgerId) -> None:
        """Delete a ledger with a tombstone for each row."""
        for key in entry_keys(ledger, np.arange(self.entries_per_ledger)):
            self.database.delete(key)
        self._flush_if_full(self.entries_per_ledger)

    def _flush_if_full(self, rows: int) -> None:
        self.unflushed_rows += rows
        if self.unflushed_rows >= self.rows_per_table:
            self.flush()

    def flush(self) -> None:
        """Write the memtable to a table."""
        self.database.flush()
        self.unflushed_rows = 0

    def settle(self) -> None:
        """Flush, and let RocksDB compact until it has nothing to do."""
        self.flush()
        self.database.set_compacting(True)
        deadline = time.monotonic() + _MAX_COMPACTION_SECONDS
        while any(self.database.property(name) != "0" for name in _COMPACTION_PROPERTIES):
            if time.monotonic() > deadline:
                limit = f"{_MAX_COMPACTION_SECONDS} seconds"
                raise RuntimeError(f"{self.top}: compactions take more than {limit}")
            time.sleep(0.001)
        self.database.set_compacting(False)

    def compact(self) -> None:
        """Merge all levels (`compactRange`)."""
        self.database.compact()

    def rebuild(self) -> None:
        """Copy the live rows into a new database, and delete the old one."""
        old_database, old_directory = self.database, self.top / f"{self.generation}"
        self.generation += 1
        self.database = self._open()
        # Batches of rows are arrays: the words of the keys, a column a key, and the locations.
        batches = old_database.items(b"", _LAST_KEY, _KEY_WORDS, _ROWS_PER_BATCH)
        for key_columns, row_locations in batches:
            keys = key_columns.T.astype(">i8", order="C").view("V16").ravel().tolist()
            self.database.put_list(keys, encode_locations(row_locations), _ROWS_PER_BATCH)
        old_database.close()
        shutil.rmtree(old_directory)

    def scan(self) -> int:
        """Read all rows and return their number."""
        batches = self.database.items(b"", _LAST_KEY, _KEY_WORDS, _ROWS_PER_BATCH)
        return sum(locations.size for _, locations in batches)

    def find_last(self, ledger: LedgerId) -> object:
        """Return the last row of a live ledger, by one backward seek."""
        return self.database.seek_for_prev(ledger_range(ledger)[1])

    def find_first(self) -> object:
        """Return the first live row, past what was deleted."""
        return self.database.seek(bytes(8 * _KEY_WORDS))

    def tombstones(self) -> int | None:
        """Return the number of range and row tombstones in the tables."""
        match = _DELETIONS_PATTERN.search(self.database.property("aggregated-table-properties"))
        return int(match[1]) if match is not None else 0

    def table_bytes(self) -> int:
        """Return the bytes of the live tables, without those that a compaction replaced."""
        return int(self.database.property("live-sst-files-size"))

    def close(self) -> None:
        """Close the database and delete its files."""
        self.database.close()
        shutil.rmtree(self.top)
