"""Rows of the RocksDB databases as values: ledger rows, location columns, the scan of all rows.

Between `database`, which knows bytes and widths, and `index`, which is the index contract.
Formats: `docs/formats/rocksdb.md`. Every row that is no bookie's is a `CorruptionError` that
names the database and the key, or a finding where a bulk read goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import numpy as np
from rocksdict import SstFileWriter

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import FLAGS_KEY, LedgerData
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.api import Finding, IndexBatch, check_put, sorted_distinct
from bkstore.index.rocks.database import Database, Words
from bkstore.index.rocks.keys import entry_keys, ledger_key, values as row_values
from bkstore.index.rocks.options import location_options

_WORD = Struct(">q").unpack
_TOTAL = re.compile(r"([a-z#][a-z #]*?)(?: \([^)]*\))?=(\d+)(?:;|$)")


@dataclass(frozen=True, slots=True)
class DatabaseSizes:
    """What RocksDB says of one database by its properties, without reading a row.

    `table_bytes` are those of the table files in use. `table_entries` counts what is in them,
    deletions and rows below deletions too, `tombstones` the deletions: `range_tombstones` of a
    whole range each, as a deleted ledger leaves. `estimated_rows` is `estimate-num-keys`, which
    knows nothing of what a range tombstone hides. `waiting` entries are in the write-ahead log
    only. `row_bytes` are keys and values as they are before compression (with 8 bytes a key that
    RocksDB adds), `index_block_bytes` and `filter_block_bytes` what stands beside them.
    """

    path: Path
    table_bytes: int
    table_entries: int
    tombstones: int
    range_tombstones: int
    estimated_rows: int
    waiting: int
    row_bytes: int
    index_block_bytes: int
    filter_block_bytes: int


def database_sizes(database: Database) -> DatabaseSizes:
    """Return what a database says of its sizes. Reads the properties of its tables, no row."""
    text = database.property("aggregated-table-properties")
    total = {name.strip(): int(value) for name, value in _TOTAL.findall(text)}
    return DatabaseSizes(
        database.path,
        int(database.property("live-sst-files-size") or 0),
        total.get("# entries", 0),
        total.get("# deletions", 0),
        total.get("# range deletions", 0),
        int(database.property("estimate-num-keys") or 0),
        int(database.property("num-entries-active-mem-table") or 0),
        total.get("raw key size", 0) + total.get("raw value size", 0),
        total.get("index block size", 0),
        total.get("filter block size", 0),
    )


def row_keys(ledger: LedgerId) -> list[bytes]:
    """Return the keys that a ledger's row may have, in the order they sort.

    `rebuild-db-ledgers-index` of BookKeeper writes 16-byte keys for scope 0.
    """
    key = ledger_key(ledger)
    return [key] if ledger.scope else [key, key + bytes(8)]


def check_shape(database: Database, kind: str, wide: bool) -> None:
    """Refuse a database whose first or last row is no bookie's. Two seeks."""
    widths = {24 if wide else 16} if kind == "locations" else {16} if wide else {8, 16}
    for key, value in database.ends():
        if len(key) not in widths or (kind == "locations" and len(value) != 8):
            detail = f"{kind} row with a key of {len(key)} and a value of {len(value)} bytes"
            raise CorruptionError(database.path, None, f"not a bookie's database: {detail}")


# -- the `ledgers` databases


def ledger_rows(database: Database, wide: bool) -> list[tuple[LedgerId, bytes, bytes]]:
    """Return (ledger, key, value) of the ledger rows in order; negative ids are left out.

    The flags row is one of those; upstream loads none of them either.
    """
    found = []
    for key, value in database.rows():
        if wide or not key or not key[0] & 0x80:
            found.append((_ledger_of(database.path, key, wide), key, value))
    return found


def find_row(database: Database, ledger: LedgerId) -> LedgerData | None:
    """Return a ledger's row, None if there is none.

    A 16-byte key wins over the 8-byte one, as it does when a bookie loads the rows in order.
    """
    for key in reversed(row_keys(ledger)):
        value = database.get(key)
        if value is not None:
            return _decoded(database.path, key, value)
    return None


def storage_flags(database: Database) -> int | None:
    """Return the storage flags (bit 0 = needs integrity check), None without such a row."""
    value = database.get(FLAGS_KEY)
    if value is not None and len(value) != 8:
        raise CorruptionError(database.path, None, f"flags row has {len(value)} bytes, not 8")
    return None if value is None else int.from_bytes(value, "big") & 0xFFFFFFFF


def odd_rows(database: Database, wide: bool) -> Iterator[Finding]:
    """Yield a finding for each row that does not parse or that only a loader accepts."""
    path = str(database.path)
    for key, value in database.rows():
        if not wide and key and key[0] & 0x80:
            if key != FLAGS_KEY:
                yield Finding("oddity", f"row {key.hex()} of a negative ledger id", path)
            continue
        name = _ledger_of(database.path, key, wide)
        if not wide and len(key) == 16:
            detail = f"row of ledger {name} has a 16-byte key (rebuild-db-ledgers-index)"
            yield Finding("oddity", detail, path, None, name)
        try:
            _decoded(database.path, key, value)
        except CorruptionError as error:
            yield Finding.of(error, name)


def _ledger_of(path: Path, key: bytes, wide: bool) -> LedgerId:
    if len(key) not in ((16,) if wide else (8, 16)) or (not wide and any(key[8:])):
        raise CorruptionError(path, None, f"key of {len(key)} bytes is no ledger's: {key.hex()}")
    number = int.from_bytes(key[:8], "big")
    try:
        return LedgerId(number, int.from_bytes(key[8:16], "big")) if wide else LedgerId(0, number)
    except InvalidArgument as error:
        raise CorruptionError(path, None, f"key {key.hex()}: {error}") from error


def _decoded(path: Path, key: bytes, value: bytes) -> LedgerData:
    try:
        return ledgerdata.decode(value)
    except CorruptionError as error:
        raise CorruptionError(path, None, f"row {key.hex()}: {error.reason}") from error


# -- the `locations` databases


def entry_column(keys: Words) -> Int64Array:
    """Return the entry ids of location keys."""
    entries: Int64Array = keys[:, -1].astype(np.int64)
    return entries


def location_column(database: Database, keys: Words, values: Words) -> Int64Array:
    """Return the locations of rows; `CorruptionError` for one that is not positive."""
    locations: Int64Array = values.astype(np.int64)
    if locations.size and int(locations.min()) <= 0:
        at = int(np.flatnonzero(locations <= 0)[0])
        detail = f"row {keys[at].tobytes().hex()}: location {locations[at]} is not positive"
        raise CorruptionError(database.path, None, detail)
    return locations


def location_of(database: Database, key: bytes, value: bytes) -> int:
    """Return the location that one value says; `CorruptionError` if it is none."""
    location: int = _WORD(value)[0] if len(value) == 8 else 0
    if location <= 0:
        detail = f"row {key.hex()}: value {value[:40].hex()} is no location"
        raise CorruptionError(database.path, None, detail)
    return location


def first_ledgers(database: Database, wide: bool) -> list[LedgerId]:
    """Return the ledgers that have location rows: one seek a ledger. Negative ids end it."""
    found: list[LedgerId] = []
    width = 24 if wide else 16
    stop = 256 ** (width - 8) if wide else 256**8 // 2
    step = 0
    while step < stop:
        key = database.first_at(step.to_bytes(width - 8, "big"))
        if key is None or (not wide and key[0] & 0x80):
            break
        if len(key) != width:
            detail = f"not a bookie's row: key of {len(key)} bytes: {key[:40].hex()}"
            raise CorruptionError(database.path, None, detail)
        found.append(_ledger_of(database.path, key[:-8], wide))
        step = int.from_bytes(key[:-8], "big") + 1
    return found


def scan_rows(
    database: Database, rows: Database, wide: bool, batch: int, findings: list[Finding] | None
) -> Iterator[IndexBatch]:
    """Yield every location row in one pass, in batches of `batch`.

    With `findings`, damage is noted there, and the pass begins again at the next ledger of
    `rows` (the `ledgers` database) that can be read; without, it raises.
    """
    width = 24 if wide else 16
    lo: bytes | None = bytes(width)
    while lo is not None:
        last = lo
        try:
            for keys, values in database.items(lo, b"\xff" * (width + 1), width, batch):
                rows_here = _batch(database, keys, values, wide, findings)
                if rows_here.entry_id.size:
                    yield rows_here
                last = keys[-1].tobytes()
            lo = None
        except CorruptionError as error:
            # All rows before the damaged place are out. An iterator does not get past it, but one
            # that begins at a later ledger may, if its rows lie in other blocks.
            if findings is None:
                raise
            lo = _next_readable(database, last, rows, wide, findings)
            upto = "the end" if lo is None else f"row {lo.hex()}"
            detail = f"{error.reason}; rows behind {last.hex()} up to {upto} are not read"
            findings.append(Finding("damage", detail, error.file, error.offset))


def _next_readable(
    database: Database, last: bytes, rows: Database, wide: bool, findings: list[Finding]
) -> bytes | None:
    """Return the first row of the first known ledger behind `last` whose rows can be reached."""
    try:
        names = [row[0] for row in ledger_rows(rows, wide) if ledger_key(row[0]) > last[:-8]]
    except CorruptionError as error:
        findings.append(Finding.of(error))
        return None
    for name in names:
        start = ledger_key(name) + bytes(8)
        try:
            key = database.first_at(start)
        except CorruptionError as error:
            detail = f"rows of ledger {name} cannot be read: {error.reason}"
            findings.append(Finding("damage", detail, error.file, error.offset, name))
        else:
            return start if key is not None else None
    return None


def _batch(
    database: Database, keys: Words, values: Words, wide: bool, findings: list[Finding] | None
) -> IndexBatch:
    columns: Int64Array = keys.astype(np.int64)
    places: Int64Array = values.astype(np.int64)
    odd = (places <= 0) | (columns[:, -1] < 0) | (columns[:, -1] > MAX_ENTRY_ID)
    odd |= (columns[:, 0] == 0) if wide else (columns[:, 0] < 0)
    if odd.any():
        at = int(np.flatnonzero(odd)[0])
        detail = (
            f"row {keys[at].tobytes().hex()}: ids or location {places[at]} are out of range"
            f" ({int(odd.sum())} rows here are)"
        )
        if findings is None:
            raise CorruptionError(database.path, None, detail)
        findings.append(Finding("damage", detail, str(database.path)))
        columns, places = columns[~odd], places[~odd]
    zero = np.broadcast_to(np.int64(0), places.shape)
    scope = columns[:, 0] if wide else zero
    return IndexBatch(zero, scope, columns[:, -2], columns[:, -1], places)


# -- writing tables


def rows_by_ledger(rows: IndexBatch, wide: bool) -> dict[LedgerId, tuple[Int64Array, Int64Array]]:
    """Return checked (entries, locations) of the ledgers of scope 0, or `wide` of the others."""
    merged: dict[LedgerId, tuple[Int64Array, Int64Array]] = {}
    for name, entries, locations in rows.by_ledger():
        if bool(name.scope) != wide:
            continue
        if name in merged:
            entries = np.concatenate((merged[name][0], entries))
            locations = np.concatenate((merged[name][1], locations))
        merged[name] = check_put(entries, locations)
    return merged


def write_table(file: Path, merged: dict[LedgerId, tuple[Int64Array, Int64Array]]) -> int:
    """Write one sorted table file, the last of equal entries; return how many rows it has."""
    writer = SstFileWriter(location_options())
    writer.open(str(file))
    count = 0
    for name in sorted(merged):
        ids, places = sorted_distinct(*merged[name], "last")
        for key, value in zip(entry_keys(name, ids), row_values(places)):
            writer[key] = value
        count += ids.size
    writer.finish()
    return count
