"""Opening and reading the two databases: all of the index contract that changes nothing.

A real bookie cannot list the entries of a ledger from these (issue 2078:
`getListOfEntriesOfLedger` throws); here it is one bounded key scan.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from struct import Struct

import numpy as np

from bkstore import forks
from bkstore.arguments import check_batch, path, truth
from bkstore.availability import Availability
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    IllegalOperation,
    NoSuchLedger,
    SystemRefused,
)
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.os_errors import readable
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import LedgerData
from bkstore.ids import (
    MAX_ENTRY_ID,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    check_bounds,
    check_entry_id,
    check_scope,
    consecutive,
)
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    IndexBatch,
    LedgerLike,
    LedgerState,
    locations_of,
)
from bkstore.index.many_ledgers import Errors, one_by_one
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import (
    entry_key,
    entry_keys,
    key_width,
    ledger_range,
)
from bkstore.index.rocks.listing import list_ledgers
from bkstore.index.rocks.options import database_options
from bkstore.index.rocks.rows import (
    DatabaseSizes,
    check_shape,
    database_sizes,
    entry_column,
    find_row,
    first_ledgers,
    ledger_rows,
    location_column,
    location_of,
    odd_rows,
    scan_rows,
    storage_flags,
)
from bkstore.index.scope_marker import MARKER_NAME, check_marker

_SCAN_FACTOR = 3  # a covering scan is cheaper than look-ups up to this many rows per one wanted
_SHORT = 1 << 16
"""Ids below which all entries of a ledger are looked at together."""

_NONE = np.empty(0, np.int64)
_KINDS = ("locations", "ledgers")
_MOST = 2**63 - 1
"""The highest ledger of scope 0."""

_KEY = Struct(">QQ").pack  # what `entry_key` does for scope 0


class RocksReader(EntryIndex):
    """The reading half of `RocksIndex`, which says what the two databases are."""

    layout = "rocksdb"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        writable: bool = False,
        live: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        writable, live = truth("writable", writable), truth("live", live)
        top = path("directory", directory)
        self._current = top if top.name == "current" else top / "current"
        self._writable = writable
        self._live = live
        self._files = check_files("files", files)
        self._open: dict[tuple[str, bool], Database] = {}
        self._narrow: Database | None = None  # the one of scope 0, at hand for single look-ups
        self._closed = False
        self._begun = False
        self._known: set[LedgerId] = set()
        forks.register(self)
        try:
            for wide in (False, True) if self._has_wide() else (False,):
                for kind in _KINDS:
                    self._database(kind, wide)
        except BaseException:
            self.close()
            raise

    # -- databases and rows

    @property
    def writable(self) -> bool:
        """Inherited."""
        return self._writable

    def _database(self, kind: str, wide: bool) -> Database:
        """Return a database, opening (where it is written, creating) it at the first time."""
        database = self._open.get((kind, wide))
        if database is None:
            path = self._current / (f"{kind}-128" if wide else kind)
            if self._writable:
                database = Database(path, database_options(kind), files=self._files)
            else:
                database = Database(path, live=self._live)
            self._open[kind, wide] = database
            check_shape(database, kind, wide)
            if (kind, wide) == ("locations", False):
                self._narrow = database
        return database

    def _has_wide(self) -> bool:
        """Return whether databases of other scopes are here, and marked."""
        marked = check_marker(self._current)
        there = any(os.path.lexists(self._current / f"{kind}-128") for kind in _KINDS)
        if there and not marked:
            reason = "missing, but 128-bit databases are here"
            raise CorruptionError(self._current / MARKER_NAME, None, reason)
        self._begun = there and not self._writable and self._is_begun()
        return there and not self._begun

    def _is_begun(self) -> bool:
        """Whether a writer ended while it made the 128-bit databases: no row is in them."""
        if (self._current / "ledgers-128" / "CURRENT").exists():  # made after `locations-128`
            return False
        folders = [self._current / f"{kind}-128" for kind in _KINDS]
        with readable(self._current):
            paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
            return not any(
                path.suffix in (".sst", ".log") and path.stat().st_size for path in paths
            )

    def _held(self, kind: str, wide: bool) -> Database | None:
        """Return a database if it is there; after `close` that is an error, not an absence."""
        if self._closed:
            raise forks.closed(f"{self._current}: this index")
        return self._open.get((kind, wide))

    def _locations(self, ledger: LedgerId) -> Database | None:
        return self._held("locations", bool(ledger.scope))

    def _rows(self, wide: bool) -> list[tuple[LedgerId, bytes, bytes]]:
        database = self._held("ledgers", wide)
        return ledger_rows(database, wide) if database else []

    # -- reading

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers with a row in `ledgers`, in unsigned order. One small scan."""
        scope = check_scope(scope)
        found: dict[LedgerId, None] = {}
        if scope is None or scope == 0:
            found.update((name, None) for name, _, _ in self._rows(False))
        if scope is None or scope:
            rows = self._rows(True)
            found.update((n, None) for n, _, _ in rows if scope is None or n.scope == scope)
        return list(found)

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of first..last: one bounded key scan, about 140 ns an entry."""
        name = LedgerId.of(ledger)
        first, last = check_bounds(first, last)
        database = self._locations(name)
        if database is None or last < first:
            return _NONE
        lo, hi = ledger_range(name, first, last)
        return entry_column(database.keys(lo, hi, key_width(name)))

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here; opens no entry log. Memory: as `availability_many`."""
        try:
            last = self.last_entry(ledger)
        except CorruptionError:  # the look at all of them says what is wrong, and where
            last = None
        if last is None or last < _SHORT:
            return self._availability_at_once(ledger)
        return next(found for _, found in self._listed([LedgerId.of(ledger)], None))

    def _availability_at_once(self, ledger: LedgerLike) -> Availability:
        """Return the same, all ids in memory at a time: quicker for a short ledger."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers: one scan of the keys, about 150 ns
        each, that leaps over ledgers not asked for. Memory: some 8 MiB, and groups of a ledger."""
        self._held("locations", False)
        return self._listed(self._names_asked(ledgers), errors)

    def _listed(
        self, names: list[LedgerId], errors: Errors | None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        scoped = bisect_left(names, 1, key=itemgetter(0))
        for wide, part in ((False, names[:scoped]), (True, names[scoped:])):
            database = self._held("locations", wide) if part else None
            while part and database is not None:
                done = 0
                try:
                    for some in list_ledgers(database, part):
                        yield from some
                        done += len(some)
                except (IllegalOperation, SystemRefused):
                    raise
                except BkstoreError:
                    # Somewhere behind what was yielded: one call for one ledger says what it is.
                    yield from one_by_one(self._availability_at_once, part[done : done + 1], errors)
                    done += 1
                part = part[done:]
            yield from one_by_one(self.availability, part, errors)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id, None if there is none. One seek."""
        name = LedgerId.of(ledger)
        database = self._locations(name)
        if database is None:
            return None
        key = database.last_below(entry_key(name, MAX_ENTRY_ID))
        if key is None or key < entry_key(name, 0):
            return None
        if len(key) != key_width(name):
            detail = f"not a bookie's row: key of {len(key)} bytes: {key[:40].hex()}"
            raise CorruptionError(database.path, None, detail)
        return int.from_bytes(key[-8:], "big")

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent; one look-up of about 2 us."""
        # As few steps as can be: those around the look-up took as long as the look-up itself.
        database = self._narrow
        if type(ledger) is int:
            number = ledger
        else:
            number = ledger[1] if type(ledger) is LedgerId and not ledger[0] else -1
        plain = type(entry) is int and 0 <= number <= _MOST and 0 <= entry <= MAX_ENTRY_ID
        if database is None or not plain:
            return self._get_of(LedgerId.of(ledger), check_entry_id(entry))
        key = _KEY(number, entry)
        value = database.get(key)
        return None if value is None else location_of(database, key, value)

    def _get_of(self, name: LedgerId, entry: int) -> int | None:
        database, key = self._locations(name), entry_key(name, entry)
        value = database.get(key) if database else None
        return location_of(database, key, value) if database and value is not None else None

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return locations, 0 where absent.

        A scan of the covering range when most of it is wanted, else sorted look-ups.
        """
        wanted = as_entry_ids(entries)
        name = LedgerId.of(ledger)
        database = self._locations(name)
        result = np.zeros(wanted.size, np.int64)
        if database is None or not wanted.size:
            return result
        first, last = int(wanted.min()), int(wanted.max())
        if last - first < _SCAN_FACTOR * wanted.size:
            return locations_of(wanted, *self.items(name, first, last))
        order = np.argsort(wanted, kind="stable")
        keys = entry_keys(name, wanted[order])
        for at, key, value in zip(order, keys, database.get_list(keys)):
            if value is not None:
                result[at] = location_of(database, key, value)
        return result

    def items(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last: one bounded scan, about 240 ns a row."""
        name = LedgerId.of(ledger)
        first, last = check_bounds(first, last)
        database = self._locations(name)
        if database is None or last < first:
            return _NONE, _NONE
        lo, hi = ledger_range(name, first, last)
        parts = list(database.items(lo, hi, key_width(name), DEFAULT_BATCH))
        if not parts:
            return _NONE, _NONE
        entries = np.concatenate([entry_column(keys) for keys, _ in parts])
        return entries, np.concatenate([location_column(database, *part) for part in parts])

    def run(self, ledger: LedgerLike, first: int, count: int) -> Int64Array:
        """Return the locations of first, first + 1, ... up to a gap: int64[n], n <= `count`.

        One bounded scan of values, about 160 ns a row; where there is a gap, `items` as well.
        """
        name = LedgerId.of(ledger)
        database = self._locations(name)
        if database is None or count <= 0:
            return _NONE
        lo, hi = ledger_range(name, first, first + count - 1)
        found = database.values(lo, hi, key_width(name))
        if found is not None:
            values, last = found
            # So many different keys, none below the first, the last so many behind it.
            whole = values.size and last == entry_key(name, first + values.size - 1)
            locations: Int64Array = values.astype(np.int64)
            if whole and int(locations.min()) > 0:
                return locations
        entries, locations = self.items(name, first, first + count - 1)
        return locations[: consecutive(entries, first)]

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Return every row of `locations`, then of `locations-128`, in one pass each.

        With `findings`, the pass begins again behind a damaged place, at the next ledger.
        """
        return self._scanned(check_batch("batch", batch), findings)

    def _scanned(self, batch: int, findings: list[Finding] | None) -> Iterator[IndexBatch]:
        for wide in (False, True):
            database, rows = self._held("locations", wide), self._held("ledgers", wide)
            if database is not None and rows is not None:
                yield from scan_rows(database, rows, wide, batch, findings)

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return what the ledger's row says; `NoSuchLedger` if there is none. Two look-ups."""
        return self._row(LedgerId.of(ledger))[0]

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Return the state, and what of the row does not fit. Two look-ups."""
        name = LedgerId.of(ledger)
        state, data, path = self._row(name)
        odd = ledgerdata.oddities(data, name)
        found = [Finding("oddity", f"row of ledger {name}: {why}", path, None, name) for why in odd]
        return state, found

    def _row(self, name: LedgerId) -> tuple[LedgerState, LedgerData, str]:
        database = self._held("ledgers", bool(name.scope))
        data = find_row(database, name) if database else None
        if database is None or data is None:
            raise NoSuchLedger(f"ledger {name} has no row in {self._current}")
        lac = data.explicit_lac or None
        state = LedgerState(data.master_key, data.fenced, bool(data.limbo), lac)
        return state, data, str(database.path)

    @property
    def storage_flags(self) -> int | None:
        """Inherited."""
        database = self._held("ledgers", False)
        return storage_flags(database) if database else None

    def findings(self) -> list[Finding]:
        """Return what opening met, ledgers that have entries but no row, and odd rows."""
        found = []
        for kind in _KINDS:
            for wide in (False, True):
                database = self._held(kind, wide)
                for file, offset, detail in database.oddities if database else []:
                    found.append(Finding("oddity", detail, str(file), offset))
                if database and kind == "ledgers":
                    found.extend(odd_rows(database, wide))
        if self._begun:
            detail = "128-bit databases that a writer began to make: they hold nothing"
            found.append(Finding("oddity", detail, str(self._current / "locations-128")))
        known = set(self.ledgers())
        for name in self.ledgers_with_entries():
            if name not in known:
                detail = f"ledger {name} has entries but no row in `ledgers`"
                path = str(self._current / ("locations-128" if name.scope else "locations"))
                found.append(Finding("oddity", detail, path, None, name))
        return found

    def sizes(self) -> list[DatabaseSizes]:
        """Return what each database here says of its sizes; no row is read."""
        there = (self._held(kind, wide) for wide in (False, True) for kind in _KINDS)
        return [database_sizes(database) for database in there if database]

    def ledgers_with_entries(self) -> list[LedgerId]:
        """Return the ledgers that have rows in `locations`: one seek a ledger."""
        narrow, wide = self._held("locations", False), self._held("locations", True)
        found = first_ledgers(narrow, False) if narrow else []
        return found + (first_ledgers(wide, True) if wide else [])

    def _forked(self) -> None:
        self._closed, self._narrow = True, None
        self._open.clear()
