"""RocksIndex: the `locations` and `ledgers` databases of db storage.

Formats: `docs/formats/rocksdb.md`. Upstream's counterparts are `EntryLocationIndex` and
`LedgerMetadataIndex`. A real bookie cannot list the entries of a ledger from these (issue
2078: `getListOfEntriesOfLedger` throws); here it is one bounded key scan.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rocksdict import Options, SstFileWriter

from bkstore.availability import Availability
from bkstore.errors import CorruptionError, InvalidArgument, NoSuchLedger, ReadOnlyError
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import FLAGS_KEY, LedgerData
from bkstore.ids import Int64Array, LedgerId, as_entry_ids, check_entry_id
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    IndexBatch,
    LedgerLike,
    LedgerState,
    check_put,
    sorted_last_wins,
)
from bkstore.index.marker import check_marker, write_marker
from bkstore.index.rocks_db import Database, Rows
from bkstore.index.rocks_keys import (
    entry_key,
    entry_keys,
    key_width,
    ledger_key,
    ledger_range,
    values,
)
from bkstore.index.rocks_options import location_options, metadata_options

__all__ = ["RocksIndex"]

PUTS_PER_BATCH = 100_000  # maxOperationNumbersInSingleRocksDBWriteBatch
_SCAN_FACTOR = 3  # a covering scan is cheaper than look-ups up to this many rows per one wanted
_NONE = np.empty(0, np.int64)


class RocksIndex(EntryIndex):
    """The RocksDB index below one ``current/``: `locations` and `ledgers`.

    Reading (the default) touches nothing: the databases are opened through a scratch directory
    of links, write-ahead logs included, as a snapshot. A directory whose lock is held is
    refused unless ``live=True``. Writing creates databases with a bookie's options; ledgers of
    other scopes go to `locations-128` and `ledgers-128`.

    A ledger is known if it has a row in `ledgers`; entries without one (a delete that was cut
    short leaves them) still answer look-ups, and `findings` names their ledgers.
    Threads: reads beside each other, one writer. Fork: open in the child. Close it: an open
    iterator keeps a database locked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, RocksIndex(top, writable=True) as index:
    ...     index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     index.entries(7).tolist(), index.get(7, 2)
    ([0, 1, 3], None)
    """

    layout = "rocksdb"

    def __init__(
        self, directory: str | os.PathLike[str], *, writable: bool = False, live: bool = False
    ) -> None:
        top = Path(directory)
        self._current = top if top.name == "current" else top / "current"
        self._writable = writable
        self._live = live
        self._open: dict[tuple[str, bool], Database | None] = {}
        self._known: set[LedgerId] = set()
        wide = check_marker(self._current)
        try:
            self._database("locations", False)
            self._database("ledgers", False)
            if wide:
                self._database("locations", True)
                self._database("ledgers", True)
        except BaseException:
            self.close()
            raise

    # -- databases and rows

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._writable

    def _database(self, kind: str, wide: bool) -> Database | None:
        """Return a database, opening or creating it; None for an absent 128-bit one."""
        if (kind, wide) in self._open and self._open[kind, wide] is not None:
            return self._open[kind, wide]
        path = self._current / (f"{kind}-128" if wide else kind)
        database: Database | None = None
        if self._writable:
            options: Options = location_options() if kind == "locations" else metadata_options()
            database = Database(path, options)
        elif not wide or path.is_dir():
            database = Database(path, live=self._live)
        if database is not None:
            self._open[kind, wide] = database
            self._check_shape(database, kind, wide)
        return database

    def _check_shape(self, database: Database, kind: str, wide: bool) -> None:
        """Refuse a database whose first or last row is no bookie's."""
        widths = {24 if wide else 16} if kind == "locations" else {16} if wide else {8, 16}
        for key, value in database.ends():
            if len(key) not in widths or (kind == "locations" and len(value) != 8):
                detail = f"{kind} row with a key of {len(key)} and a value of {len(value)} bytes"
                raise CorruptionError(database.path, None, f"not a bookie's database: {detail}")

    def _locations(self, ledger: LedgerId) -> Database | None:
        if self._writable or not ledger.scope:
            return self._database("locations", bool(ledger.scope))
        return self._open.get(("locations", True))

    def _rows(self, wide: bool) -> list[tuple[LedgerId, bytes, bytes]]:
        """Return (ledger, key, value) of the ledger rows, in order, flags row left out."""
        database = self._open.get(("ledgers", wide))
        found = []
        for key, value in database.rows() if database else []:
            if not wide and key[0] & 0x80:  # the flags row; negative ids are not loaded upstream
                continue
            found.append((_ledger_of(key, wide, database), key, value))
        return found

    # -- reading

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers with a row in `ledgers`, in unsigned order. One small scan."""
        found: dict[LedgerId, None] = {}
        if scope is None or scope == 0:
            found.update((name, None) for name, _, _ in self._rows(False))
        if scope != 0:
            rows = self._rows(True)
            found.update((n, None) for n, _, _ in rows if scope is None or n.scope == scope)
        return list(found)

    def _key_rows(self, ledger: LedgerId, first: int, last: int | None) -> Rows | None:
        database = self._locations(ledger)
        if database is None or (last is not None and last < first):
            return None
        lo, hi = ledger_range(ledger, first, last)
        return database.keys(lo, hi, key_width(ledger))

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of first..last: one bounded key scan, about 140 ns an entry."""
        name = LedgerId.of(ledger)
        rows = self._key_rows(name, first, last)
        return _NONE if rows is None else _entry_column(rows, key_width(name))

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here; opens no entry log."""
        return Availability.from_entries(self.entries(ledger))

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id, None if there is none. One seek."""
        name = LedgerId.of(ledger)
        database = self._locations(name)
        if database is None:
            return None
        lo, hi = ledger_range(name)
        key = database.last_below(hi)
        if key is None or len(key) != key_width(name) or not lo <= key < hi:
            return None
        return int.from_bytes(key[-8:], "big")

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent; one look-up of about 2 us."""
        name = LedgerId.of(ledger)
        database = self._locations(name)
        key = entry_key(name, check_entry_id(entry))
        value = database.get(key) if database else None
        return None if value is None else _location(value, key, database) or None

    def get_many(self, ledger: LedgerLike, entries: npt.ArrayLike | Iterable[int]) -> Int64Array:
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
            ids, places = self.items(name, first, last)
            if ids.size:
                at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
                result = np.where(ids[at] == wanted, places[at], 0)
            return result
        order = np.argsort(wanted, kind="stable")
        keys = entry_keys(name, wanted[order])
        for at, (key, value) in enumerate(zip(keys, database.get_list(keys))):
            if value is not None:
                result[order[at]] = _location(value, key, database)
        return result

    def items(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last: one bounded scan, about 240 ns a row."""
        name = LedgerId.of(ledger)
        database = self._locations(name)
        if database is None or (last is not None and last < first):
            return _NONE, _NONE
        lo, hi = ledger_range(name, first, last)
        width = key_width(name)
        parts = list(database.items(lo, hi, width, DEFAULT_BATCH))
        if not parts:
            return _NONE, _NONE
        entries = np.concatenate([_entry_column(part["k"], width) for part in parts])
        return entries, np.concatenate([_location_column(part, database) for part in parts])

    def scan(
        self, batch: int = DEFAULT_BATCH, findings: list[Finding] | None = None
    ) -> Iterator[IndexBatch]:
        """Yield every row of `locations`, then of `locations-128`, in one pass each."""
        for wide in (False, True):
            database = self._open.get(("locations", wide))
            if database is None:
                continue
            width = 24 if wide else 16
            try:
                for part in database.items(b"", b"\xff" * (width + 1), width, batch):
                    yield _batch(part, width, database)
            except CorruptionError as error:
                if findings is None:
                    raise
                findings.append(Finding("damage", error.reason, error.file, error.offset))

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return the ledger's row; `NoSuchLedger` if there is none.

        A 16-byte key, which `rebuild-db-ledgers-index` writes, wins over the 8-byte one, as it
        does when a bookie loads the rows in order.
        """
        name = LedgerId.of(ledger)
        database = self._open.get(("ledgers", bool(name.scope)))
        if database is not None:
            for key in reversed(_row_keys(name)):
                value = database.get(key)
                if value is not None:
                    data = _decoded(value, database, key)
                    return LedgerState(
                        data.master_key, data.fenced, bool(data.limbo), data.explicit_lac
                    )
        raise NoSuchLedger(f"ledger {name} has no row in {self._current}")

    @property
    def storage_flags(self) -> int | None:
        """The storage flags row (bit 0 = needs integrity check), None if there is none."""
        database = self._open[("ledgers", False)]
        value = database.get(FLAGS_KEY) if database else None
        if value is not None and len(value) != 8:
            raise CorruptionError(self._current / "ledgers", None, "flags row is not 8 bytes")
        return None if value is None else int.from_bytes(value, "big") & 0xFFFFFFFF

    def findings(self) -> list[Finding]:
        """Return ledgers that have entries but no row, and rows that only loaders accept."""
        found = []
        known = set()
        for wide in (False, True):
            for name, key, value in self._rows(wide):
                known.add(name)
                if not wide and len(key) == 16:
                    detail = f"row of ledger {name} has a 16-byte key (rebuild-db-ledgers-index)"
                    found.append(Finding("oddity", detail, self._path("ledgers", wide), None, name))
                try:
                    _decoded(value, self._open["ledgers", wide], key)
                except CorruptionError as error:
                    found.append(Finding("damage", error.reason, error.file, None, name))
        for name in self.ledgers_with_entries():
            if name not in known:
                detail = f"ledger {name} has entries but no row in `ledgers`"
                path = self._path("locations", bool(name.scope))
                found.append(Finding("oddity", detail, path, None, name))
        return found

    def ledgers_with_entries(self) -> list[LedgerId]:
        """Return the ledgers that have rows in `locations`: one seek a ledger."""
        found = []
        for wide in (False, True):
            database = self._open.get(("locations", wide))
            key = database.first_at(b"") if database else None
            while database is not None and key is not None:
                found.append(_ledger_of(key[:-8], wide, database))
                step = int.from_bytes(key[:-8], "big") + 1
                if step >> 8 * (len(key) - 8):
                    break
                key = database.first_at(step.to_bytes(len(key) - 8, "big"))
        return found

    def _path(self, kind: str, wide: bool) -> str:
        return str(self._current / (f"{kind}-128" if wide else kind))

    # -- writing

    def _writing(self, ledger: LedgerLike) -> tuple[LedgerId, Database, Database]:
        if not self._writable:
            raise ReadOnlyError("this index was opened for reading")
        name = LedgerId.of(ledger)
        if name.scope:
            write_marker(self._current)
        locations = self._database("locations", bool(name.scope))
        ledgers = self._database("ledgers", bool(name.scope))
        if locations is None or ledgers is None:
            raise ReadOnlyError(f"{self._current}: databases are closed")
        return name, locations, ledgers

    def _writing_entries(self, ledger: LedgerLike) -> tuple[LedgerId, Database]:
        """Return where to put entries; an unknown ledger gets a row with an empty key.

        A bookie replaces an empty master key with the first real one.
        """
        name, locations, ledgers = self._writing(ledger)
        if name not in self._known:
            if all(ledgers.get(key) is None for key in _row_keys(name)):
                ledgers.put(ledger_key(name), ledgerdata.encode(LedgerData()))
            self._known.add(name)
        return name, locations

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store the location of one entry, without sync (`flush` syncs)."""
        ids, places = check_put([entry], [location])
        name, database = self._writing_entries(ledger)
        database.put(entry_key(name, int(ids[0])), int(places[0]).to_bytes(8, "big"))

    def put_many(
        self,
        ledger: LedgerLike,
        entries: npt.ArrayLike | Iterable[int],
        locations: npt.ArrayLike | Iterable[int],
    ) -> None:
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
        merged: dict[LedgerId, tuple[Int64Array, Int64Array]] = {}
        for name, entries, locations in rows.by_ledger():
            if bool(name.scope) != wide:
                continue
            if name in merged:
                entries = np.concatenate((merged[name][0], entries))
                locations = np.concatenate((merged[name][1], locations))
            merged[name] = check_put(entries, locations)
        if not merged:
            return 0
        count = 0
        with tempfile.TemporaryDirectory(prefix="ingest-", dir=self._current) as scratch:
            file = Path(scratch) / "rows.sst"
            writer = SstFileWriter(location_options())
            writer.open(str(file))
            for name in sorted(merged):
                _, database = self._writing_entries(name)
                ids, places = sorted_last_wins(*merged[name])
                for key, value in zip(entry_keys(name, ids), values(places)):
                    writer[key] = value
                count += ids.size
            writer.finish()
            database.ingest(file)
        return count

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Write the ledger's 8-byte row (16 for scopes); a rebuilt 16-byte one is replaced."""
        name, _, database = self._writing(ledger)
        limbo = True if state.limbo else None
        data = LedgerData(state.master_key, state.fenced, state.explicit_lac, limbo)
        database.put(ledger_key(name), ledgerdata.encode(data))
        for key in _row_keys(name)[1:]:
            if database.get(key) is not None:
                database.delete(key)
        self._known.add(name)

    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's rows with one range delete, then its `ledgers` row.

        That order is a bookie's: a crash in between leaves a known, empty ledger.
        """
        name, locations, ledgers = self._writing(ledger)
        locations.delete_range(*ledger_range(name))
        for key in _row_keys(name):
            ledgers.delete(key)
        self._known.discard(name)

    def flush(self) -> None:
        """Sync the write-ahead logs: everything put is durable then."""
        for database in self._open.values():
            if database is not None and self._writable:
                database.sync()

    def close(self) -> None:
        """Flush, close the databases, remove the scratch directories."""
        try:
            self.flush()
        finally:
            for database in self._open.values():
                if database is not None:
                    database.close()
            self._open.clear()


def _row_keys(ledger: LedgerId) -> list[bytes]:
    """Return the keys a ledger's row may have, in the order they sort."""
    key = ledger_key(ledger)
    return [key] if ledger.scope else [key, key + bytes(8)]


def _ledger_of(key: bytes, wide: bool, database: Database | None) -> LedgerId:
    if len(key) not in ((16,) if wide else (8, 16)):
        path = database.path if database else None
        raise CorruptionError(path, None, f"key of {len(key)} bytes: {key.hex()}")
    number = int.from_bytes(key[:8], "big")
    try:
        return LedgerId(number, int.from_bytes(key[8:16], "big")) if wide else LedgerId(0, number)
    except InvalidArgument as error:
        path = database.path if database else None
        raise CorruptionError(path, None, f"key {key.hex()}: {error}") from error


def _decoded(value: bytes, database: Database | None, key: bytes) -> LedgerData:
    try:
        return ledgerdata.decode(value)
    except CorruptionError as error:
        path = database.path if database else None
        raise CorruptionError(path, None, f"row {key.hex()}: {error.reason}") from error


def _entry_column(keys: Rows, width: int) -> Int64Array:
    return np.ascontiguousarray(keys).view(">i8").reshape(-1, width // 8)[:, -1].astype(np.int64)


def _location_column(rows: Rows, database: Database) -> Int64Array:
    locations: Int64Array = np.ascontiguousarray(rows["v"]).view(">i8").astype(np.int64)
    if locations.size and int(locations.min()) <= 0:
        key = rows["k"][locations <= 0][:1].tobytes().hex()
        bad = int(locations[locations <= 0][0])
        raise CorruptionError(database.path, None, f"row {key}: location {bad} is not positive")
    return locations


def _location(value: bytes, key: bytes, database: Database | None) -> int:
    location = int.from_bytes(value, "big", signed=True)
    if len(value) != 8 or location < 0:
        path = database.path if database else None
        raise CorruptionError(path, None, f"row {key.hex()}: value {value.hex()} is no location")
    return location


def _batch(rows: Rows, width: int, database: Database) -> IndexBatch:
    columns = np.ascontiguousarray(rows["k"]).view(">i8").reshape(-1, width // 8).astype(np.int64)
    zero = np.broadcast_to(np.int64(0), rows.shape)
    scope = columns[:, 0] if width == 24 else zero
    locations = _location_column(rows, database)
    return IndexBatch(zero, scope, columns[:, -2], columns[:, -1], locations)
