"""Opening and reading the two databases: all of the index contract that changes nothing. A real
bookie cannot list a ledger's entries from these (issue 2078: `getListOfEntriesOfLedger` throws);
here it is one bounded key scan."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from struct import Struct
from typing import cast

import numpy as np

from bkstore import forks
from bkstore.arguments import boolean, check_batch, path
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError, NoSuchLedger
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import LedgerData
from bkstore.ids import (
    MAX_ENTRY_ID,
    EntryLocations,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    check_bounds,
    check_entry_id,
    check_scope,
    is_ascending,
)
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    Findings,
    IndexBatch,
    LedgerLike,
    LedgerListing,
    LedgerState,
    UnknownLedgers,
    locations_of,
)
from bkstore.index.bulk_listing import (
    UNRELATED_ERRORS,
    LedgerErrors,
    Listing,
    list_one_by_one,
    normalize_ledger_ids,
)
from bkstore.index.rocks import rows
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import (
    MAX_UNSCOPED_LEDGER,
    entry_key,
    entry_keys,
    key_words,
    ledger_range,
    ledgers_of_keys,
)
from bkstore.index.rocks.ledger_listing import list_ledgers
from bkstore.index.rocks.options import database_options
from bkstore.index.rocks.readable_database import (
    DatabaseSizes,
    LedgersDatabase,
    LocationsDatabase,
    ReadableDatabase,
)
from bkstore.index.rocks.table_database import open_ledgers, open_locations
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.index.scope_marker import MARKER_NAME, check_marker

_NO_ENTRIES = np.empty(0, np.int64)
_KINDS = ("locations", "ledgers")

_pack_unscoped_key = Struct(">QQ").pack  # the key of `entry_key` for scope 0


class RocksReader(EntryIndex):
    """The reading half of `RocksIndex`, which documents both."""

    layout = "rocksdb"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        writable: bool = False,
        live: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Open the databases that exist below `directory`, which may also be the ``current/``
        itself; `RocksIndex` has the arguments and the errors."""
        writable, live = boolean("writable", writable), boolean("live", live)
        current = path("directory", directory)
        self._current_dir = current if current.name == "current" else current / "current"
        self._writable = writable
        self._live = live
        self._files = check_files("files", files)
        self._databases: dict[tuple[str, bool], ReadableDatabase] = {}  # by kind and `is_scoped`
        # The locations of scope 0, for fast single look-ups.
        self._unscoped_locations: LocationsDatabase | None = None
        self._closed = False
        self._has_unfinished_creation = False  # of 128-bit databases, see `findings`
        self._known_ledgers: set[LedgerId] = set()
        self._listings: dict[int | None, LedgerListing] = {}  # of a reader, by scope
        forks.register(self)
        try:
            for is_scoped in (False, True) if self._has_scoped_databases() else (False,):
                for kind in _KINDS:
                    self._database(kind, is_scoped)
        except BaseException:
            self.close()
            raise

    # -- databases and rows

    @property
    def writable(self) -> bool:
        """Inherited."""
        return self._writable

    def _database(self, kind: str, is_scoped: bool) -> ReadableDatabase:
        """Return the database of a kind (`locations` or `ledgers`) for scope 0, or if `is_scoped`
        for all other scopes. The first call opens it, and if writable creates it."""
        database = self._databases.get((kind, is_scoped))
        if database is None:
            path = self._current_dir / (f"{kind}-128" if is_scoped else kind)
            if self._writable:
                database = Database(path, database_options(kind), files=self._files)
            else:
                open_to_read = open_locations if kind == "locations" else open_ledgers
                database = open_to_read(path, self._live)
            self._databases[kind, is_scoped] = database  # `close` closes it if the check fails
            rows.check_end_rows(database, kind, is_scoped, self._writable)
            if (kind, is_scoped) == ("locations", False):
                self._unscoped_locations = cast(LocationsDatabase, database)
        return database

    def _has_scoped_databases(self) -> bool:
        """Return whether there are databases of scopes other than 0, whose ids have 128 bits.
        Raises `CorruptionError` if they exist, but not the file that marks such a directory. A
        reader takes databases whose creation was interrupted for absent: they are empty."""
        is_marked = check_marker(self._current_dir)
        exists = any(os.path.lexists(self._current_dir / f"{kind}-128") for kind in _KINDS)
        if exists and not is_marked:
            reason = "missing, but 128-bit databases are here"
            raise CorruptionError(self._current_dir / MARKER_NAME, None, reason)
        is_unfinished = exists and not self._writable and self._was_creation_interrupted()
        self._has_unfinished_creation = is_unfinished
        return exists and not is_unfinished

    def _was_creation_interrupted(self) -> bool:
        """Return whether a writer died while it created the 128-bit databases: the one created last
        has no CURRENT yet, and no file of either has rows."""
        if (self._current_dir / "ledgers-128" / "CURRENT").exists():  # the last one created
            return False
        folders = [self._current_dir / f"{kind}-128" for kind in _KINDS]
        with convert_read_errors(self._current_dir):
            files = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
            return not any(f.suffix in (".sst", ".log") and f.stat().st_size for f in files)

    def _find_database(self, kind: str, is_scoped: bool) -> ReadableDatabase | None:
        """Return a database, None if it does not exist; raise if this index is closed."""
        if self._closed:
            raise forks.closed_error(f"{self._current_dir}: this index")
        return self._databases.get((kind, is_scoped))

    def _find_locations(self, is_scoped: bool) -> LocationsDatabase | None:
        return cast(LocationsDatabase | None, self._find_database("locations", is_scoped))

    def _find_ledgers(self, is_scoped: bool) -> LedgersDatabase | None:
        return cast(LedgersDatabase | None, self._find_database("ledgers", is_scoped))

    def _locations_of(self, ledger: LedgerId) -> LocationsDatabase | None:
        return self._find_locations(bool(ledger.scope))

    # -- reading

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers with a row in `ledgers`, in unsigned order. One small scan. Raises
        `CorruptionError` if damage may hide some of the scope, or for a row with a key that is not
        a ledger's."""
        listing = self.list_readable_ledgers(scope)
        for finding in listing.findings:
            raise CorruptionError(finding.file, finding.offset, finding.detail)
        return listing.ledgers

    def list_readable_ledgers(self, scope: int | None = None) -> LedgerListing:
        """Return the ledgers with a row in a sound block of `ledgers`, and the ranges of ids that
        damaged ones hide. Rows whose keys are not a ledger's hide none, and are findings. A reader,
        whose rows do not change, lists a scope once; a repeated call copies what it listed."""
        scope = check_scope(scope)
        self._find_ledgers(False)  # raises if the index is closed
        listing = self._listings.get(scope)
        if listing is None:
            listing = self._list_ledger_rows(scope)
            if not self._writable:
                self._listings[scope] = listing
        return LedgerListing(listing.ledgers[:], listing.unknown[:], listing.findings[:])

    def _list_ledger_rows(self, scope: int | None) -> LedgerListing:
        """Return the result of `list_readable_ledgers`, from all rows of `ledgers`."""
        listing, odd_rows = LedgerListing([]), list[CorruptionError]()
        # Scope 0 and all other scopes have databases of their own.
        for is_scoped in (False, True):
            is_wanted = scope is None or bool(scope) == is_scoped
            database = self._find_ledgers(is_scoped) if is_wanted else None
            if database is None:
                continue
            damage: list[UnknownRange] = []
            ledger_rows = rows.read_ledger_rows(database, is_scoped, damage, odd_rows)
            # Rows are in the order of ids; a ledger may have two, under both its possible keys.
            ledger_ids = dict.fromkeys(ledger_id for ledger_id, _, _ in ledger_rows)
            listing.ledgers.extend(n for n in ledger_ids if scope is None or n.scope == scope)
            for each in damage:
                bounds = ledgers_of_keys(each.start, each.stop, is_scoped)
                if bounds is None or not (scope is None or _has_scope(bounds, scope)):
                    continue
                listing.unknown.append(UnknownLedgers(*bounds))
                listing.findings.append(rows.describe_unknown_ledgers(each, is_scoped))
        listing.findings.extend(map(Finding.of, odd_rows))
        return listing

    def has_ledger(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger has a row in `ledgers`: two look-ups. Raises `CorruptionError`
        if damage may hide one."""
        ledger_id = LedgerId.of(ledger)
        database = self._find_ledgers(bool(ledger_id.scope))
        return database is not None and rows.has_ledger_row(database, ledger_id)

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of first..last, read from keys alone: about 60 ns an entry, 140 if
        RocksDB reads them."""
        ledger_id = LedgerId.of(ledger)
        first, last = check_bounds(first, last)
        database = self._locations_of(ledger_id)
        if database is None or last < first:
            return _NO_ENTRIES
        start, stop = ledger_range(ledger_id, first, last)
        entries: Int64Array = database.keys(start, stop, key_words(ledger_id))[-1]  # last words
        return entries

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are stored; opens no entry log. Memory: as `availability_many`."""
        ledger_id = LedgerId.of(ledger)
        database = self._locations_of(ledger_id)
        if database is None or not database.may_be_long(*ledger_range(ledger_id)):
            return self._availability_at_once(ledger_id)
        return next(result for _, result in self._list_by_scan([ledger_id], None))

    def _availability_at_once(self, ledger: LedgerLike) -> Availability:
        """Return the same with all ids in memory at once: faster for a short ledger."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers: one scan of the keys, about 150 ns
        each, that skips other ledgers by seeks. Memory: some 8 MiB, and groups of a ledger."""
        self._find_database("locations", is_scoped=False)  # raises if the index is closed
        return self._list_by_scan(self._ledgers_to_list(ledgers), errors)

    def _list_by_scan(self, ledger_ids: list[LedgerId], errors: LedgerErrors | None) -> Listing:
        """Yield the result of each ledger in order; `ledger_ids` are sorted and distinct. One scan
        lists many ledgers. At damage, the ledger there gets its result or error from a call of its
        own, and a new scan begins after it."""
        # Scope 0 (sorted first) and all other scopes have databases of their own.
        first_scoped = bisect_left(ledger_ids, 1, key=itemgetter(0))  # the first of scope >= 1
        for is_scoped in (False, True):
            remaining = ledger_ids[first_scoped:] if is_scoped else ledger_ids[:first_scoped]
            database = self._find_locations(is_scoped) if remaining else None
            while remaining and database is not None:
                listed_count = 0
                try:
                    for listed in list_ledgers(database, remaining):
                        yield from listed
                        listed_count += len(listed)
                except UNRELATED_ERRORS:
                    raise
                except BkstoreError:
                    # The damage is after the ledgers yielded: a call for the next one reports it.
                    damaged = remaining[listed_count : listed_count + 1]
                    yield from list_one_by_one(self._availability_at_once, damaged, errors)
                    listed_count += 1
                remaining = remaining[listed_count:]
            # Without a database every set is empty.
            yield from list_one_by_one(self.availability, remaining, errors)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id, None if there is none. Reads one or two blocks."""
        ledger_id = LedgerId.of(ledger)
        database = self._locations_of(ledger_id)
        if database is None:
            return None
        key = database.last_key(*ledger_range(ledger_id), key_words(ledger_id))
        return None if key is None else int.from_bytes(key[-8:], "big")  # its last word

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent. A look-up takes about 2 us by RocksDB,
        some 60 us if table files are read as arrays (see `TableLocations`)."""
        # Ids that are evidently valid pass without the usual checks, which would take as long as
        # the look-up itself. So do only int and `LedgerId` of scope 0.
        database = self._unscoped_locations
        if type(ledger) is int:
            number = ledger
        else:  # a LedgerId is a tuple (scope, ledger); -1 leaves all others to the usual checks
            number = ledger[1] if type(ledger) is LedgerId and not ledger[0] else -1
        is_valid = type(entry) is int and 0 <= entry <= MAX_ENTRY_ID
        if database is None or not (is_valid and 0 <= number <= MAX_UNSCOPED_LEDGER):
            return self._get_checked(LedgerId.of(ledger), check_entry_id(entry))
        key = _pack_unscoped_key(number, entry)
        value = database.get(key)
        return None if value is None else rows.decode_location(database, key, value)

    def _get_checked(self, ledger_id: LedgerId, entry: int) -> int | None:
        database, key = self._locations_of(ledger_id), entry_key(ledger_id, entry)
        value = database.get(key) if database else None
        if database is None or value is None:
            return None
        return rows.decode_location(database, key, value)

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return locations, 0 where absent. If most entries between the lowest and the highest are
        wanted, these are scanned (without their keys if all are wanted, in order, and none is
        absent); otherwise each entry is looked up."""
        entry_ids = as_entry_ids(entries)
        ledger_id = LedgerId.of(ledger)
        database = self._locations_of(ledger_id)
        result = np.zeros(entry_ids.size, np.int64)
        if database is None or not entry_ids.size:
            return result
        first, last = int(entry_ids.min()), int(entry_ids.max())
        if last - first == entry_ids.size - 1 and is_ascending(entry_ids):  # no gap is wanted
            run = self.get_location_run(ledger_id, first, entry_ids.size)
            if run.size == entry_ids.size:
                return run
        # A scan of so few rows is cheaper than that many look-ups.
        if last - first < database.max_scanned(entry_ids.size):
            return locations_of(entry_ids, *self.items(ledger_id, first, last))
        sort_order = np.argsort(entry_ids, kind="stable")
        keys = entry_keys(ledger_id, entry_ids[sort_order])
        for position, key, value in zip(sort_order, keys, database.get_list(keys)):
            if value is not None:
                result[position] = rows.decode_location(database, key, value)
        return result

    def items(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> EntryLocations:
        """Return (entries, locations) of first..last by one scan: about 60 ns a row, 240 if RocksDB
        reads them."""
        ledger_id = LedgerId.of(ledger)
        first, last = check_bounds(first, last)
        database = self._locations_of(ledger_id)
        if database is None or last < first:
            return _NO_ENTRIES, _NO_ENTRIES
        start, stop = ledger_range(ledger_id, first, last)
        blocks = list(database.items(start, stop, key_words(ledger_id), DEFAULT_BATCH))
        if not blocks:
            return _NO_ENTRIES, _NO_ENTRIES
        for keys, locations in blocks:
            rows.check_locations(database, keys, locations)
        entries = np.concatenate([keys[-1] for keys, _ in blocks])  # a key's last word
        return entries, np.concatenate([locations for _, locations in blocks])

    def get_location_run(self, ledger: LedgerLike, first: int, count: int) -> Int64Array:
        """Return the locations of first, first + 1, ... up to the first entry that is absent:
        int64[n], n <= `count`. One scan; RocksDB reads values alone, about 160 ns a row."""
        ledger_id = LedgerId.of(ledger)
        database = self._locations_of(ledger_id)
        if database is None or count <= 0:
            return _NO_ENTRIES
        start, stop = ledger_range(ledger_id, first, first + count - 1)
        locations = database.consecutive_values(start, stop, key_words(ledger_id))
        if locations.size and int(locations.min()) <= 0:
            self.items(ledger_id, first, first + locations.size - 1)  # raises, with the key
        return locations

    def scan(self, batch: int = DEFAULT_BATCH, findings: Findings = None) -> Iterator[IndexBatch]:
        """Return every row of `locations`, then of `locations-128`, in one pass each. With
        `findings`, damage is appended there with the keys that are unknown, and rows that it leaves
        certain follow."""
        return self._scan_databases(check_batch("batch", batch), findings)

    def _scan_databases(self, batch: int, findings: Findings) -> Iterator[IndexBatch]:
        for is_scoped in (False, True):
            database = self._find_locations(is_scoped)
            if database is not None:
                yield from rows.scan_rows(database, is_scoped, batch, findings)

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return the state in the ledger's row; `NoSuchLedger` if there is none. Two look-ups."""
        return self._read_row(LedgerId.of(ledger))[0]

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Return the state, and a finding for each oddity of the row. Two look-ups."""
        ledger_id = LedgerId.of(ledger)
        state, row, path = self._read_row(ledger_id)
        oddities = ledgerdata.oddities(row, ledger_id)
        details = [f"row of ledger {ledger_id}: {oddity}" for oddity in oddities]
        return state, [Finding("oddity", detail, path, None, ledger_id) for detail in details]

    def _read_row(self, ledger_id: LedgerId) -> tuple[LedgerState, LedgerData, str]:
        """Return a ledger's state, its row as stored, and the path of the database."""
        database = self._find_ledgers(bool(ledger_id.scope))
        row = rows.find_ledger_row(database, ledger_id) if database else None
        if database is None or row is None:
            raise NoSuchLedger(f"ledger {ledger_id} has no row in {self._current_dir}")
        explicit_lac = row.explicit_lac or None
        state = LedgerState(row.master_key, row.fenced, bool(row.limbo), explicit_lac)
        return state, row, str(database.path)

    @property
    def storage_flags(self) -> int | None:
        """Inherited."""
        database = self._find_ledgers(False)
        return rows.read_storage_flags(database) if database else None

    def findings(self) -> list[Finding]:
        """Return a finding for each oddity that opening the databases found, for each row of
        `ledgers` that is not as a bookie writes it, for each ledger with entries but no such row,
        and for the damage that reading these rows found."""
        findings = []
        for kind in _KINDS:
            for is_scoped in (False, True):
                database = self._find_database(kind, is_scoped)
                for file, offset, detail in database.oddities if database else []:
                    findings.append(Finding("oddity", detail, str(file), offset))
        for is_scoped in (False, True):
            damage: list[UnknownRange] = []
            ledgers = self._find_ledgers(is_scoped)
            findings += rows.find_row_oddities(ledgers, is_scoped, damage) if ledgers else []
            findings += [rows.describe_unknown_ledgers(unknown, is_scoped) for unknown in damage]
        if self._has_unfinished_creation:
            detail = "128-bit databases whose creation was interrupted: they are empty"
            findings.append(Finding("oddity", detail, str(self._current_dir / "locations-128")))
        listing = self.list_readable_ledgers()
        for is_scoped in (False, True):
            findings += self._find_ledgers_without_row(is_scoped, listing)
        return findings

    def _find_ledgers_without_row(
        self, is_scoped: bool, listing: LedgerListing
    ) -> Iterator[Finding]:
        """Yield a finding for each ledger that has entries but no row in `ledgers`, of scope 0 or
        if `is_scoped` of other scopes, and for each range of keys that damage makes unknown. A
        ledger whose row damage may hide has none."""
        database, damage = self._find_locations(is_scoped), list[UnknownRange]()
        if database is None:
            return
        known_ledgers = set(listing.ledgers)
        for ledger_id in rows.list_ledgers_with_rows(database, is_scoped, damage):
            if ledger_id not in known_ledgers and not listing.may_include(ledger_id):
                detail = f"ledger {ledger_id} has entries but no row in `ledgers`"
                yield Finding("oddity", detail, str(database.path), None, ledger_id)
        for unknown in damage:
            yield rows.describe_unknown(unknown, is_scoped)

    def estimate_rows(self, ledgers: Iterable[LedgerLike]) -> Int64Array:
        """Return about how many rows of `locations` each of some ledgers has, in the order of their
        ids, each once: int64[n]. From the indexes of table files, some 5 us a ledger; no row is
        read. Rows in damaged files may not be counted."""
        ledger_ids = normalize_ledger_ids(ledgers)
        split = bisect_left(ledger_ids, 1, key=itemgetter(0))  # at the first of scope >= 1
        parts = [np.empty(0, np.int64)]
        for is_scoped, part in enumerate((ledger_ids[:split], ledger_ids[split:])):
            database = self._find_locations(bool(is_scoped))
            prefixes = [ledger_range(ledger_id)[0][:-8] for ledger_id in part]  # without entry ids
            empty = np.zeros(len(part), np.int64)
            parts.append(empty if database is None else database.estimate_rows(prefixes))
        return np.concatenate(parts)

    def sizes(self) -> list[DatabaseSizes]:
        """Return the sizes of each database; reads no row."""
        keys = [(kind, is_scoped) for is_scoped in (False, True) for kind in _KINDS]
        databases = [self._find_database(*key) for key in keys]
        return [database.sizes() for database in databases if database]

    def ledgers_with_entries(self) -> list[LedgerId]:
        """Return the ledgers that have rows in `locations`."""
        ledger_ids: list[LedgerId] = []
        for is_scoped in (False, True):
            database = self._find_locations(is_scoped)
            ledger_ids += rows.list_ledgers_with_rows(database, is_scoped) if database else []
        return ledger_ids

    def _forked(self) -> None:
        self._closed, self._unscoped_locations = True, None
        self._databases.clear()
        self._listings.clear()


def _has_scope(bounds: tuple[LedgerId, LedgerId], scope: int) -> bool:
    """Return whether some ledger between the first and the last has the scope."""
    first, last = bounds
    return first.scope <= scope <= last.scope
