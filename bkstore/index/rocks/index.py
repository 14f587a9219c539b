"""RocksIndex: the `locations` and `ledgers` databases of db storage. Formats:
`docs/formats/rocksdb.md`. BookKeeper's counterparts are `EntryLocationIndex` and
`LedgerMetadataIndex`. `reader` has the reading half; this module changes the databases."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import cast

from bkstore import forks
from bkstore.arguments import iterable
from bkstore.errors import ReadOnlyError
from bkstore.files.scratch import scratch_directory
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import LedgerData
from bkstore.ids import IntArrayLike, LedgerId, check_entry_id, check_location
from bkstore.index.api import IndexBatch, LedgerLike, LedgerState, check_put, check_state
from bkstore.index.rocks.bulk_rows import sort_rows, write_rows
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import (
    encode_locations,
    entry_key,
    entry_keys,
    ledger_key,
    ledger_range,
)
from bkstore.index.rocks.reader import RocksReader
from bkstore.index.rocks.rows import possible_row_keys
from bkstore.index.scope_marker import write_marker

PUTS_PER_BATCH = 100_000  # maxOperationNumbersInSingleRocksDBWriteBatch


class RocksIndex(RocksReader):
    """The RocksDB index below one ``current/``: `locations` and `ledgers`.

    Reading (the default) changes nothing: the databases are opened through a scratch directory of
    links, write-ahead logs included, as a snapshot. A directory whose lock is held is refused
    unless ``live=True``. Writing creates databases with a bookie's options; ledgers of other scopes
    go to `locations-128` and `ledgers-128`. Directories and the marker are created through `files`,
    which is notified of each sync of a database. After `WriteFailed` RocksDB takes no writes until
    it is opened again, after `SyncFailed` this index takes none.

    A ledger is known if it has a row in `ledgers`; entries without one (left by an interrupted
    delete) can still be read, and `findings` reports their ledgers. Threads: concurrent reads, one
    writer. Fork: closed in the child, which may open it for reading; for writing only where no
    database was opened before the fork (else `IllegalOperation`: RocksDB's threads are not there).
    Close it: an open iterator keeps a database locked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, RocksIndex(top, writable=True) as index:
    ...     index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     index.entries(7).tolist(), index.get(7, 2)
    ([0, 1, 3], None)
    """

    def _open_to_write(self, ledger: LedgerLike) -> tuple[LedgerId, Database, Database]:
        """Return (ledger id, its database of locations, its database of ledgers) to write to. Those
        of scope 0 and those of all other scopes are different databases. Raises if this index may
        not write."""
        if self._closed:
            raise forks.closed_error(f"{self._current_dir}: this index")
        if not self._writable:
            raise ReadOnlyError("this index was opened read-only")
        for database in self._open_databases():  # after a failed sync of one, none takes writes
            database.check_writable()
        ledger_id = LedgerId.of(ledger)
        if ledger_id.scope:
            write_marker(self._current_dir, self._files)
        is_scoped = bool(ledger_id.scope)
        locations = self._writable_database("locations", is_scoped)
        return ledger_id, locations, self._writable_database("ledgers", is_scoped)

    def _writable_database(self, kind: str, is_scoped: bool) -> Database:
        return cast(Database, self._database(kind, is_scoped))

    def _open_databases(self) -> list[Database]:
        """Return the databases of a writable index."""
        return [cast(Database, database) for database in self._databases.values()]

    def _open_to_put(self, ledger: LedgerLike) -> tuple[LedgerId, Database]:
        """Return (ledger id, locations) to put entries into. An unknown ledger gets a row with an
        empty master key, which a bookie replaces with the first real one."""
        ledger_id, locations, ledgers = self._open_to_write(ledger)
        if ledger_id not in self._known_ledgers:
            if all(ledgers.get(key) is None for key in possible_row_keys(ledger_id)):
                ledgers.put(ledger_key(ledger_id), ledgerdata.encode(LedgerData()))
            self._known_ledgers.add(ledger_id)
        return ledger_id, locations

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store the location of one entry, without sync (`flush` syncs)."""
        entry, location = check_entry_id(entry), check_location(location)
        ledger_id, database = self._open_to_put(ledger)
        database.put(entry_key(ledger_id, entry), location.to_bytes(8, "big"))

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store locations in write batches; the last of equal entries wins. 0.3 us a row."""
        entry_ids, checked_locations = check_put(entries, locations)
        ledger_id, database = self._open_to_put(ledger)
        for start in range(0, entry_ids.size, PUTS_PER_BATCH):
            chunk = slice(start, start + PUTS_PER_BATCH)
            keys = entry_keys(ledger_id, entry_ids[chunk])
            database.put_list(keys, encode_locations(checked_locations[chunk]), PUTS_PER_BATCH)

    def bulk_load(self, batches: Iterable[IndexBatch]) -> int:
        """Store rows, in any order, as sorted table files, one for each batch; return the number of
        rows. This is the fastest way to store them (0.15 us each), without write-ahead log and
        compaction. A row replaces those of the same entry in earlier batches, and stored ones."""
        row_count = 0
        for rows in batches:
            for is_scoped in (False, True):  # scope 0, then others, which have their own database
                row_count += self._ingest(rows, is_scoped)
        return row_count

    def _ingest(self, rows: IndexBatch, is_scoped: bool) -> int:
        """Write those of the rows that are of scope 0, or if `is_scoped` of other scopes, as one
        table file, and ingest it (RocksDB takes the whole file). Return the number of its rows."""
        rows = sort_rows(rows, is_scoped)
        if not rows.entry_id.size:
            return 0
        for ledger_id, _, _ in rows.by_ledger():
            self._open_to_put(ledger_id)  # the ledger becomes known, its databases are opened
        with scratch_directory("ingest", self._current_dir) as scratch:
            write_rows(scratch / "rows.sst", rows, is_scoped, self._files)
            self._writable_database("locations", is_scoped).ingest(scratch / "rows.sst")
        return rows.entry_id.size

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Write the ledger's row under its usual key. In scope 0 there may be one under a key with
        eight zeros appended, which BookKeeper's rebuild tool writes: it is removed, as a bookie
        that has both rows uses that one."""
        check_state(state)
        ledger_id, _, ledgers = self._open_to_write(ledger)
        limbo = True if state.limbo else None  # as a bookie, which writes the field if it is true
        row = LedgerData(state.master_key, state.fenced, state.explicit_lac or None, limbo)
        usual_key, *other_keys = possible_row_keys(ledger_id)
        ledgers.put(usual_key, ledgerdata.encode(row))
        for key in other_keys:
            if ledgers.get(key) is not None:
                ledgers.delete(key)
        self._known_ledgers.add(ledger_id)

    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's rows with one range delete, then its `ledgers` row."""
        self.delete_many([ledger])

    def delete_many(self, ledgers: Iterable[LedgerLike]) -> None:
        """Remove the ledgers' locations, with a range delete each, then, after a sync, their rows
        in `ledgers`. With this order, that of BookKeeper's `EntryLocationIndex.delete`, a crash may
        leave a known ledger without entries, but never entries of an unknown ledger. One sync for
        each database."""
        targets = [self._open_to_write(ledger) for ledger in iterable("ledgers", ledgers)]
        for ledger_id, locations, _ in targets:
            locations.delete_range(*ledger_range(ledger_id))
        for locations in {id(database): database for _, database, _ in targets}.values():
            locations.sync()  # each database once
        for ledger_id, _, ledger_rows in targets:
            for key in possible_row_keys(ledger_id):
                ledger_rows.delete(key)
            self._known_ledgers.discard(ledger_id)

    def compact_locations(self) -> None:
        """Compact the `locations` databases, like `EntryLocationIndex.compact`, to free the space
        of rows deleted or put again. Reads and puts go on."""
        if self._writable:
            for is_scoped in [scoped for kind, scoped in self._databases if kind == "locations"]:
                self._writable_database("locations", is_scoped).compact()

    def flush(self) -> None:
        """Sync the write-ahead logs: every change is durable then. After `SyncFailed`, reopen."""
        if self._writable:
            for database in self._open_databases():
                database.sync()

    def close(self) -> None:
        """Flush, close the databases and remove the scratch directories, even if one step fails."""
        self._closed, self._unscoped_locations = True, None
        with ExitStack() as closing:  # its callbacks run in reverse order, even if `flush` fails
            closing.callback(self._databases.clear)
            closing.callback(self._listings.clear)
            for database in self._databases.values():
                closing.callback(database.close)
            self.flush()
