"""Rows of the RocksDB databases as values: ledger rows, location columns, the scan of all rows. The
layer between `database` (bytes and widths) and `index` (the index contract). Formats:
`docs/formats/rocksdb.md`. A row that no bookie wrote raises a `CorruptionError` with the database
and the key, or becomes a finding if a bulk read goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import FLAGS_KEY, LedgerData
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.api import Finding, Findings, IndexBatch
from bkstore.index.rocks.database import Database, Words
from bkstore.index.rocks.keys import (
    NARROW_KEY,
    UNFLUSHED_ENTRIES,
    WIDE_KEY,
    ledger_key,
    read_table_totals,
)

_unpack_int64 = Struct(">q").unpack


@dataclass(frozen=True, slots=True)
class DatabaseSizes:
    """The sizes of one database, from RocksDB's properties. `table_bytes` is the size of the table
    files in use. `table_entries` counts all entries in them, tombstones and hidden rows included;
    `tombstones` counts all tombstones, `range_tombstones` those of a range, as a deleted ledger
    leaves. `estimated_rows` is `estimate-num-keys`, which ignores range tombstones.
    `unflushed_entries` entries are only in the write-ahead log. `row_bytes` counts keys and values
    before compression (with the 8 bytes that RocksDB adds to a key), `index_block_bytes` and
    `filter_block_bytes` the blocks beside them."""

    path: Path
    table_bytes: int
    table_entries: int
    tombstones: int
    range_tombstones: int
    estimated_rows: int
    unflushed_entries: int
    row_bytes: int
    index_block_bytes: int
    filter_block_bytes: int


def read_database_sizes(database: Database) -> DatabaseSizes:
    """Return the sizes of a database. Reads the properties of its tables, no row."""
    totals = read_table_totals(database.property)
    return DatabaseSizes(
        database.path,
        int(database.property("live-sst-files-size") or 0),
        totals.get("# entries", 0),
        totals.get("# deletions", 0),
        totals.get("# range deletions", 0),
        int(database.property("estimate-num-keys") or 0),
        int(database.property(UNFLUSHED_ENTRIES) or 0),
        totals.get("raw key size", 0) + totals.get("raw value size", 0),
        totals.get("index block size", 0),
        totals.get("filter block size", 0),
    )


def possible_row_keys(ledger: LedgerId) -> list[bytes]:
    """Return the keys that a ledger's row may have, sorted: `rebuild-db-ledgers-index` of
    BookKeeper writes 16-byte keys for scope 0."""
    key = ledger_key(ledger)
    return [key] if ledger.scope else [key, key + bytes(8)]


def check_end_rows(database: Database, kind: str, is_scoped: bool) -> None:
    """Raise `CorruptionError` if the first or last row is not a bookie's. Two seeks."""
    if kind == "locations":
        key_widths = {WIDE_KEY if is_scoped else NARROW_KEY}
    else:
        key_widths = {16} if is_scoped else {8, 16}  # those of `possible_row_keys`
    for key, value in database.read_end_rows():
        if len(key) not in key_widths or (kind == "locations" and len(value) != 8):
            detail = f"{kind} row with a key of {len(key)} and a value of {len(value)} bytes"
            raise CorruptionError(database.path, None, f"not a bookie's database: {detail}")


# -- the `ledgers` databases


def read_ledger_rows(database: Database, is_scoped: bool) -> list[tuple[LedgerId, bytes, bytes]]:
    """Return (ledger, key, value) of the ledger rows in order, without those of negative ids, such
    as the flags row, which upstream does not load either."""
    return [
        (_ledger_of(database.path, key, is_scoped), key, value)
        for key, value in database.read_all()
        if is_scoped or not _has_negative_id(key)
    ]


def _has_negative_id(key: bytes) -> bool:
    """Return whether a key of scope 0, whose ids are signed, begins with a negative ledger id."""
    return bool(key) and key[0] & 0x80 != 0


def find_ledger_row(database: Database, ledger: LedgerId) -> LedgerData | None:
    """Return a ledger's row, or None; of two, that with the 16-byte key wins, as in a bookie."""
    for key in reversed(possible_row_keys(ledger)):
        value = database.get(key)
        if value is not None:
            return _decode_row(database.path, key, value)
    return None


def read_storage_flags(database: Database) -> int | None:
    """Return the storage flags (bit 0 = needs integrity check), None if there is no flags row."""
    value = database.get(FLAGS_KEY)
    if value is not None and len(value) != 8:
        raise CorruptionError(database.path, None, f"flags row has {len(value)} bytes, not 8")
    return None if value is None else int.from_bytes(value, "big") & 0xFFFFFFFF


def find_row_oddities(database: Database, is_scoped: bool) -> Iterator[Finding]:
    """Yield a finding for each row that does not parse or is not as a bookie writes it."""
    path = str(database.path)
    for key, value in database.read_all():
        if not is_scoped and _has_negative_id(key):
            if key != FLAGS_KEY:  # the flags row has one, in every bookie
                yield Finding("oddity", f"row {key.hex()} of a negative ledger id", path)
            continue
        ledger_id = _ledger_of(database.path, key, is_scoped)
        if not is_scoped and len(key) == 16:
            detail = f"row of ledger {ledger_id} has a 16-byte key (rebuild-db-ledgers-index)"
            yield Finding("oddity", detail, path, None, ledger_id)
        try:
            _decode_row(database.path, key, value)
        except CorruptionError as error:
            yield Finding.of(error, ledger_id)


def _ledger_of(path: Path, key: bytes, is_scoped: bool) -> LedgerId:
    """Return the ledger id of a `ledgers` key; `CorruptionError` if it is not one."""
    if is_scoped:
        is_row_key = len(key) == 16
    else:
        is_row_key = len(key) == 8 or (len(key) == 16 and not any(key[8:]))
    if not is_row_key:
        raise CorruptionError(path, None, f"key of {len(key)} bytes is not a ledger's: {key.hex()}")
    first_half = int.from_bytes(key[:8], "big")
    try:
        if is_scoped:
            return LedgerId(first_half, int.from_bytes(key[8:16], "big"))
        return LedgerId(0, first_half)
    except InvalidArgument as error:
        raise CorruptionError(path, None, f"key {key.hex()}: {error}") from error


def _decode_row(path: Path, key: bytes, value: bytes) -> LedgerData:
    """Return the ledger's data; an error names the row by its key."""
    try:
        return ledgerdata.decode(value)
    except CorruptionError as error:
        raise CorruptionError(path, None, f"row {key.hex()}: {error.reason}") from error


# -- the `locations` databases


def decode_entry_ids(keys: Words) -> Int64Array:
    """Return the entry ids of location keys."""
    entries: Int64Array = keys[:, -1].astype(np.int64)
    return entries


def decode_locations(database: Database, keys: Words, values: Words) -> Int64Array:
    """Return the locations of rows; `CorruptionError` for one that is not positive."""
    locations: Int64Array = values.astype(np.int64)
    if locations.size and int(locations.min()) <= 0:
        row = int(np.flatnonzero(locations <= 0)[0])
        detail = f"row {keys[row].tobytes().hex()}: location {locations[row]} is not positive"
        raise CorruptionError(database.path, None, detail)
    return locations


def decode_location(database: Database, key: bytes, value: bytes) -> int:
    """Return the location in a value; `CorruptionError` if it is not a valid one."""
    location: int = _unpack_int64(value)[0] if len(value) == 8 else 0  # 0 is no location
    if location <= 0:
        detail = f"row {key.hex()}: value {value[:40].hex()} is not a location"
        raise CorruptionError(database.path, None, detail)
    return location


def list_ledgers_with_rows(database: Database, is_scoped: bool) -> list[LedgerId]:
    """Return the ledgers that have location rows: one seek a ledger. Stops at negative ids."""
    ledger_ids: list[LedgerId] = []
    key_width = WIDE_KEY if is_scoped else NARROW_KEY
    # A key is its ledger's prefix and an entry id; as numbers, prefixes are in the order of keys.
    stop_prefix = 2**128 if is_scoped else 2**63
    next_prefix = 0
    while next_prefix < stop_prefix:
        key = database.seek(next_prefix.to_bytes(key_width - 8, "big"))
        if key is None or (not is_scoped and _has_negative_id(key)):
            break
        if len(key) != key_width:
            detail = f"not a bookie's row: key of {len(key)} bytes: {key[:40].hex()}"
            raise CorruptionError(database.path, None, detail)
        ledger_prefix = key[:-8]
        ledger_ids.append(_ledger_of(database.path, ledger_prefix, is_scoped))
        next_prefix = int.from_bytes(ledger_prefix, "big") + 1
    return ledger_ids


def scan_rows(
    database: Database, ledgers: Database, is_scoped: bool, batch: int, findings: Findings
) -> Iterator[IndexBatch]:
    """Yield every location row in one pass, in batches of `batch`. With `findings`, damage is
    appended there (else raised), and the scan goes on at the next readable ledger of `ledgers`."""
    key_width = WIDE_KEY if is_scoped else NARROW_KEY
    past_all_keys = b"\xff" * (key_width + 1)
    start: bytes | None = bytes(key_width)
    while start is not None:
        last_key = start
        try:
            for keys, values in database.items(start, past_all_keys, key_width, batch):
                index_rows = _to_index_batch(database, keys, values, is_scoped, findings)
                if index_rows.entry_id.size:
                    yield index_rows
                last_key = keys[-1].tobytes()
            start = None
        except CorruptionError as error:
            # All rows before the damage were yielded. The iterator cannot pass the damage, but one
            # that begins at a later ledger can, if that ledger's rows are in other blocks.
            if findings is None:
                raise
            start = _find_next_readable(database, last_key, ledgers, is_scoped, findings)
            resumed_at = "the end" if start is None else f"row {start.hex()}"
            detail = f"{error.reason}; rows after {last_key.hex()} up to {resumed_at} are not read"
            findings.append(Finding("damage", detail, error.file, error.offset))


def _find_next_readable(
    database: Database, last_key: bytes, ledgers: Database, is_scoped: bool, findings: list[Finding]
) -> bytes | None:
    """Return where to resume after `last_key`: entry 0 of the next ledger in `ledgers` from which
    a seek succeeds, None if there is none. Appends a finding for each ledger where it fails."""
    try:
        known_ledgers = [ledger_id for ledger_id, _, _ in read_ledger_rows(ledgers, is_scoped)]
    except CorruptionError as error:
        findings.append(Finding.of(error))
        return None
    for ledger_id in known_ledgers:
        if ledger_key(ledger_id) <= last_key[:-8]:  # its rows were read, or hold the damage
            continue
        start = ledger_key(ledger_id) + bytes(8)  # the key of entry 0
        try:
            key = database.seek(start)
        except CorruptionError as error:
            detail = f"rows of ledger {ledger_id} cannot be read: {error.reason}"
            findings.append(Finding("damage", detail, error.file, error.offset, ledger_id))
        else:
            return start if key is not None else None
    return None


def _to_index_batch(
    database: Database, keys: Words, values: Words, is_scoped: bool, findings: Findings
) -> IndexBatch:
    """Return the rows as columns. Invalid ones are left out, with a finding, or raise."""
    locations: Int64Array = values.astype(np.int64)
    id_columns: Int64Array = keys.astype(np.int64).T  # scope (if scoped), ledger, entry
    first_ids, entries = id_columns[0], id_columns[-1]
    is_invalid = (locations <= 0) | (entries < 0) | (entries > MAX_ENTRY_ID)
    is_invalid |= (first_ids == 0) if is_scoped else (first_ids < 0)
    if is_invalid.any():
        row = int(np.flatnonzero(is_invalid)[0])
        detail = (
            f"row {keys[row].tobytes().hex()}: ids or location {locations[row]} are out of range"
            f" (as are {int(is_invalid.sum())} rows here in all)"
        )
        if findings is None:
            raise CorruptionError(database.path, None, detail)
        findings.append(Finding("damage", detail, str(database.path)))
        id_columns, locations = id_columns[:, ~is_invalid], locations[~is_invalid]
    zeros = np.broadcast_to(np.int64(0), locations.shape)
    scopes = id_columns[0] if is_scoped else zeros
    return IndexBatch(zeros, scopes, id_columns[-2], id_columns[-1], locations)
