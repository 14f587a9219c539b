"""RocksIndex: the `locations` and `ledgers` databases of db storage.

Formats: `docs/formats/rocksdb.md`. Upstream's counterparts are `EntryLocationIndex` and
`LedgerMetadataIndex`. `reader` has the reading half; here is what changes the databases.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from bkstore import forks
from bkstore.arguments import each
from bkstore.errors import ReadOnlyError
from bkstore.files.scratch import scratch_directory
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import LedgerData
from bkstore.ids import IntArrayLike, LedgerId, check_entry_id, check_location
from bkstore.index.api import (
    IndexBatch,
    LedgerLike,
    LedgerState,
    check_put,
    check_state,
)
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import (
    entry_key,
    entry_keys,
    ledger_key,
    ledger_range,
    values,
)
from bkstore.index.rocks.reader import RocksReader
from bkstore.index.rocks.rows import (
    row_keys,
    rows_by_ledger,
    write_table,
)
from bkstore.index.scope_marker import write_marker

PUTS_PER_BATCH = 100_000  # maxOperationNumbersInSingleRocksDBWriteBatch


class RocksIndex(RocksReader):
    """The RocksDB index below one ``current/``: `locations` and `ledgers`.

    Reading (the default) touches nothing: the databases are opened through a scratch directory
    of links, write-ahead logs included, as a snapshot. A directory whose lock is held is
    refused unless ``live=True``. Writing creates databases with a bookie's options; ledgers of
    other scopes go to `locations-128` and `ledgers-128`. Through `files` go the directories and
    the marker that it makes; it is told of each sync of a database. After `WriteFailed` RocksDB
    takes no writes until it is opened again, after `SyncFailed` this index takes none.

    A ledger is known if it has a row in `ledgers`; entries without one (a delete that was cut
    short leaves them) still answer look-ups, and `findings` names their ledgers.
    Threads: reads beside each other, one writer. Fork: closed in the child, which may open it
    for reading; for writing only where no database was opened before the fork (else
    `IllegalOperation`: RocksDB's threads are not there). Close it: an open iterator keeps a
    database locked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, RocksIndex(top, writable=True) as index:
    ...     index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     index.entries(7).tolist(), index.get(7, 2)
    ([0, 1, 3], None)
    """

    def _writing(self, ledger: LedgerLike) -> tuple[LedgerId, Database, Database]:
        if self._closed:
            raise forks.closed(f"{self._current}: this index")
        if not self._writable:
            raise ReadOnlyError("this index was opened for reading")
        for database in self._open.values():  # the failure of one ends them all
            database.check_writable()
        name = LedgerId.of(ledger)
        if name.scope:
            write_marker(self._current, self._files)
        wide = bool(name.scope)
        return name, self._database("locations", wide), self._database("ledgers", wide)

    def _writing_entries(self, ledger: LedgerLike) -> tuple[LedgerId, Database]:
        """Return where to put entries; an unknown ledger gets a row with an empty key.

        A bookie replaces an empty master key with the first real one.
        """
        name, locations, ledgers = self._writing(ledger)
        if name not in self._known:
            if all(ledgers.get(key) is None for key in row_keys(name)):
                ledgers.put(ledger_key(name), ledgerdata.encode(LedgerData()))
            self._known.add(name)
        return name, locations

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store the location of one entry, without sync (`flush` syncs)."""
        entry, location = check_entry_id(entry), check_location(location)
        name, database = self._writing_entries(ledger)
        database.put(entry_key(name, entry), location.to_bytes(8, "big"))

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store locations in write batches; the last of equal entries wins. 0.3 us a row."""
        ids, places = check_put(entries, locations)
        name, database = self._writing_entries(ledger)
        for at in range(0, ids.size, PUTS_PER_BATCH):
            part = slice(at, at + PUTS_PER_BATCH)
            database.put_list(entry_keys(name, ids[part]), values(places[part]), PUTS_PER_BATCH)

    def bulk_load(self, batches: Iterable[IndexBatch]) -> int:
        """Ingest rows as sorted table files, one a batch; return how many rows went in.

        The fastest way in (0.24 us a row): no write-ahead log, no compaction. Rows of a later
        batch win over earlier ones and over what is there. Any order inside a batch.
        """
        total = 0
        for rows in batches:
            for wide in (False, True):
                total += self._ingest(rows, wide)
        return total

    def _ingest(self, rows: IndexBatch, wide: bool) -> int:
        merged = rows_by_ledger(rows, wide)
        for name in merged:
            self._writing_entries(name)  # the ledger becomes known, its databases are opened
        if not merged:
            return 0
        with scratch_directory("ingest", self._current) as scratch:
            file = scratch / "rows.sst"
            count = write_table(file, merged)
            self._database("locations", wide).ingest(file)
        return count

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Write the ledger's 8-byte row (16 for scopes); a rebuilt 16-byte one is replaced."""
        check_state(state)
        name, _, database = self._writing(ledger)
        limbo = True if state.limbo else None
        data = LedgerData(state.master_key, state.fenced, state.explicit_lac or None, limbo)
        database.put(ledger_key(name), ledgerdata.encode(data))
        for key in row_keys(name)[1:]:
            if database.get(key) is not None:
                database.delete(key)
        self._known.add(name)

    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's rows with one range delete, then its `ledgers` row."""
        self.delete_many([ledger])

    def delete_many(self, ledgers: Iterable[LedgerLike]) -> None:
        """Remove the ledgers' rows with a range delete each, then their `ledgers` rows.

        The range deletes are synced in between, as in `EntryLocationIndex.delete`: a crash may
        leave a known, empty ledger, but no entries of one that is not known. One sync in all.
        """
        asked = each("ledgers", ledgers)
        writing = [(LedgerId.of(ledger), *self._writing(ledger)[1:]) for ledger in asked]
        for name, locations, _ in writing:
            locations.delete_range(*ledger_range(name))
        for locations in {id(found): found for _, found, _ in writing}.values():
            locations.sync()
        for name, _, rows in writing:
            for key in row_keys(name):
                rows.delete(key)
            self._known.discard(name)

    def compact_locations(self) -> None:
        """Merge what RocksDB keeps of the locations, as `EntryLocationIndex.compact`.

        Rows that were deleted or put again take no room afterwards. Reads and puts go on.
        """
        for (kind, _), database in list(self._open.items()):
            if kind == "locations":
                database.compact()

    def flush(self) -> None:
        """Sync the write-ahead logs: everything put is durable then.

        `SyncFailed` where the system could not; open the index again then.
        """
        if self._writable:
            for database in self._open.values():
                database.sync()

    def close(self) -> None:
        """Flush, close the databases, remove the scratch directories; each whatever else fails."""
        self._closed, self._narrow = True, None
        with ExitStack() as closing:  # each is closed, whatever happens to the others
            closing.callback(self._open.clear)
            for database in self._open.values():
                closing.callback(database.close)
            self.flush()
