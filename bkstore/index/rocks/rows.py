"""Rows of the RocksDB databases as values: ledger rows, location columns, the scan of all rows. The
layer between `database` (bytes and widths) and `index` (the index contract). Formats:
`docs/formats/rocksdb.md`. A row that no bookie wrote raises a `CorruptionError` with the database
and the key, or becomes a finding if a bulk read goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import FLAGS_KEY, LedgerData
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.api import Finding, Findings, IndexBatch
from bkstore.index.rocks.keys import (
    NARROW_WORDS,
    VALUE_BYTES,
    WIDE_WORDS,
    KeyRange,
    key_bytes,
    ledger_key,
    ledgers_of_keys,
)
from bkstore.index.rocks.readable_database import (
    KeyColumns,
    KeysAndValues,
    LedgersDatabase,
    LocationsDatabase,
    ReadableDatabase,
)
from bkstore.index.rocks.tables.damage import Damage, UnknownRange, report

_unpack_int64 = Struct(">q").unpack


def possible_row_keys(ledger: LedgerId) -> list[bytes]:
    """Return the keys that a ledger's row may have, sorted: `rebuild-db-ledgers-index` of
    BookKeeper writes 16-byte keys for scope 0."""
    key = ledger_key(ledger)
    return [key] if ledger.scope else [key, key + bytes(8)]


def check_end_rows(
    database: ReadableDatabase, kind: str, is_scoped: bool, is_writable: bool
) -> None:
    """Raise `CorruptionError` if neither the first nor the last row of the database (`kind` is
    `locations` or `ledgers`) has the widths of a bookie's rows, as in a database of other software;
    if it `is_writable`, also if one of them has not. A reader reports single rows of other widths
    by itself. `is_scoped`: its ledgers are in scopes other than 0, so that ids have 128 bits. Two
    seeks at most."""
    words = location_words(is_scoped) if kind == "locations" else None
    if words is not None:
        key_widths = {8 * words}
    else:  # in scope 0 `ledgers` has keys of 8 bytes, or of 16 that BookKeeper's rebuild tool wrote
        key_widths = {16} if is_scoped else {8, 16}
    end_rows, odd_sizes = database.end_rows(words), list[str]()
    for key, value in end_rows:
        is_odd_value = kind == "locations" and value is not None and len(value) != VALUE_BYTES
        if len(key) not in key_widths or is_odd_value:
            of_value = "" if value is None else f", a value of {len(value)}"
            odd_sizes.append(f"a key of {len(key)}{of_value} bytes")
    if odd_sizes and (is_writable or len(odd_sizes) == len(end_rows)):
        detail = f"not a bookie's database: {kind} row with {odd_sizes[0]}"
        raise CorruptionError(database.path, None, detail)


# -- the `ledgers` databases


def read_ledger_rows(
    database: LedgersDatabase,
    is_scoped: bool,
    damage: Damage = None,
    odd_rows: list[CorruptionError] | None = None,
) -> list[tuple[LedgerId, bytes, bytes]]:
    """Return (ledger, key, value) of the rows of `ledgers` in order. `is_scoped`: it is the
    database of scopes other than 0. In scope 0 rows of negative ids, such as that of the storage
    flags, are left out, as BookKeeper does not load them as ledgers either. The ranges of keys that
    damage makes unknown are appended to `damage`; with None it raises, unless no ledger is in
    them. A row whose key is not a ledger's hides no ledger: its error is appended to `odd_rows`;
    with None it raises."""
    unknown_ranges: list[UnknownRange] = []
    rows: list[tuple[LedgerId, bytes, bytes]] = []
    for key, value in database.read_all(unknown_ranges):
        if not is_scoped and _has_negative_id(key):
            continue
        try:
            rows.append((_ledger_of(database.path, key, is_scoped), key, value))
        except CorruptionError as error:
            if odd_rows is None:
                raise
            odd_rows.append(error)
    for unknown in unknown_ranges:
        if ledgers_of_keys(unknown.start, unknown.stop, is_scoped) is not None:
            report(unknown, damage)
    return rows


def describe_unknown_ledgers(unknown: UnknownRange, is_scoped: bool) -> Finding:
    """Return the finding for damage that makes a range of rows of `ledgers` unknown. It names the
    ledger if there can only be one."""
    error, bounds = unknown.error(), ledgers_of_keys(unknown.start, unknown.stop, is_scoped)
    only_ledger = bounds[0] if bounds is not None and bounds[0] == bounds[1] else None
    return Finding("damage", error.reason, error.file, error.offset, only_ledger)


def _has_negative_id(key: bytes) -> bool:
    """Return whether a key of scope 0, whose ids are signed, begins with a negative ledger id."""
    return bool(key) and key[0] & 0x80 != 0


def _may_be_ledger(key: bytes, is_scoped: bool) -> bool:
    """Return whether a key begins with the id of a ledger that belongs to the database: of a scope
    other than 0 if `is_scoped`, otherwise one that is not negative."""
    return any(key[:8]) if is_scoped else not _has_negative_id(key)


def has_ledger_row(database: ReadableDatabase, ledger: LedgerId) -> bool:
    """Return whether a ledger has a row. Raises `CorruptionError` if none is found and damage may
    hide one."""
    damage: CorruptionError | None = None
    for key in possible_row_keys(ledger):
        try:
            if database.get(key) is not None:
                return True
        except CorruptionError as error:
            damage = error
    if damage is not None:
        raise damage
    return False


def find_ledger_row(database: ReadableDatabase, ledger: LedgerId) -> LedgerData | None:
    """Return a ledger's row, or None; of two, that with the 16-byte key wins, as in a bookie."""
    for key in reversed(possible_row_keys(ledger)):
        value = database.get(key)
        if value is not None:
            return _decode_row(database.path, key, value)
    return None


def read_storage_flags(database: ReadableDatabase) -> int | None:
    """Return the storage flags (bit 0 = needs integrity check), None if there is no flags row."""
    value = database.get(FLAGS_KEY)
    if value is not None and len(value) != 8:
        raise CorruptionError(database.path, None, f"flags row has {len(value)} bytes, not 8")
    return None if value is None else int.from_bytes(value, "big") & 0xFFFFFFFF


def find_row_oddities(
    database: LedgersDatabase, is_scoped: bool, damage: list[UnknownRange]
) -> Iterator[Finding]:
    """Yield a finding for each row of `ledgers` that does not parse, whose key is not a ledger's,
    or that is not as a bookie writes it. `is_scoped`: it is the database of scopes other than 0.
    The ranges of keys that damage makes unknown are appended to `damage`."""
    path = str(database.path)
    for key, value in database.read_all(damage):
        if not is_scoped and _has_negative_id(key):
            if key != FLAGS_KEY:  # the row of the storage flags, which every bookie has
                yield Finding("oddity", f"row {key.hex()} of a negative ledger id", path)
            continue
        try:
            ledger_id = _ledger_of(database.path, key, is_scoped)
        except CorruptionError as error:
            yield Finding.of(error)
            continue
        if not is_scoped and len(key) == 16:
            detail = f"row of ledger {ledger_id} has a 16-byte key (rebuild-db-ledgers-index)"
            yield Finding("oddity", detail, path, None, ledger_id)
        try:
            _decode_row(database.path, key, value)
        except CorruptionError as error:
            yield Finding.of(error, ledger_id)


def _ledger_of(path: Path, key: bytes, is_scoped: bool) -> LedgerId:
    """Return the ledger id of a key of `ledgers`; raise `CorruptionError` if it is not valid. A key
    of scope 0 has 8 bytes, or 16 of which the last 8 are zeros (BookKeeper's tool that rebuilds the
    database writes those); a scoped one has 16, scope and ledger."""
    if is_scoped:
        is_row_key = len(key) == 16 and any(key[:8])
    else:
        is_row_key = len(key) == 8 or (len(key) == 16 and not any(key[8:]))
    if not is_row_key:
        reason = f"key of {len(key)} bytes is not a ledger's: {key[:40].hex()}"
        raise CorruptionError(path, None, reason)
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


def location_words(is_scoped: bool) -> int:
    """Return the words of the keys of a `locations` database."""
    return WIDE_WORDS if is_scoped else NARROW_WORDS


def check_locations(database: LocationsDatabase, keys: KeyColumns, locations: Int64Array) -> None:
    """Raise `CorruptionError` for a row whose location is not positive."""
    if locations.size and int(locations.min()) <= 0:
        row = int(np.flatnonzero(locations <= 0)[0])
        detail = f"row {key_bytes(keys, row).hex()}: location {locations[row]} is not positive"
        raise CorruptionError(database.path, None, detail)


def decode_location(database: ReadableDatabase, key: bytes, value: bytes) -> int:
    """Return the location in a value; `CorruptionError` if it is not a valid one."""
    location: int = _unpack_int64(value)[0] if len(value) == 8 else 0  # 0 is no location
    if location <= 0:
        detail = f"row {key.hex()}: value {value[:40].hex()} is not a location"
        raise CorruptionError(database.path, None, detail)
    return location


def list_ledgers_with_rows(
    database: LocationsDatabase, is_scoped: bool, damage: Damage = None
) -> list[LedgerId]:
    """Return the ledgers that have rows in `locations`. Ledgers of negative ids, which no bookie
    writes, are left out; with `is_scoped` ids are of 128 unsigned bits, so none is negative, but
    those of scope 0 are left out. Ranges of keys that damage makes unknown are appended to
    `damage`; with None it raises."""
    # Keys have two 64-bit words, ledger and entry, or three with a scope; entries are left out.
    prefixes = database.key_prefixes(location_words(is_scoped), damage)
    return [
        _ledger_of(database.path, prefix, is_scoped)
        for prefix in prefixes
        if _may_be_ledger(prefix, is_scoped)
    ]


def scan_rows(
    database: LocationsDatabase,
    is_scoped: bool,
    batch: int,
    findings: Findings,
    start: bytes = b"",
    stop: bytes | None = None,
    unknown_keys: list[KeyRange] | None = None,
) -> Iterator[IndexBatch]:
    """Yield every location row in [start, stop) (None: to the end) in one pass, in batches of at
    most `batch`. With `findings`, damage and invalid rows become findings, and the rows after them
    follow; without, they raise. The ranges of keys whose rows may be missing for it are appended to
    `unknown_keys` at the end. `is_scoped`: it is the database of scopes other than 0, whose keys
    begin with the scope."""
    damage: list[UnknownRange] | None = None if findings is None else []
    invalid_rows = InvalidRows(database.path)
    for columns in database.items(start, stop, location_words(is_scoped), batch, damage):
        keys, locations = invalid_rows.remove(*columns, is_scoped)
        if findings is None:
            invalid_rows.raise_if_any()
        if locations.size:
            zeros = np.broadcast_to(np.int64(0), locations.shape)
            scopes = keys[0] if is_scoped else zeros
            ledgers, entries = keys[-2:]  # the last two words of a key
            yield IndexBatch(zeros, scopes, ledgers, entries, locations)
    if findings is not None:
        findings += invalid_rows.findings()
        findings += [describe_unknown(unknown, is_scoped) for unknown in damage or ()]
    if unknown_keys is not None:
        unknown_keys += invalid_rows.key_ranges()
        unknown_keys += [(unknown.start, unknown.stop) for unknown in damage or ()]


class InvalidRows:
    """The rows of a scan with ids or locations out of range: the first one, their number, and
    their ledgers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first = ""
        self._count = 0
        self._prefixes: set[bytes] = set()

    def remove(self, keys: KeyColumns, locations: Int64Array, is_scoped: bool) -> KeysAndValues:
        """Return the rows without those that are invalid; these are counted, and their ledgers
        noted. The words of a key are ledger and entry, or scope, ledger and entry if scoped."""
        first_ids, entries = keys[0], keys[-1]
        is_invalid = (locations <= 0) | (entries < 0) | (entries > MAX_ENTRY_ID)
        is_invalid |= (first_ids == 0) if is_scoped else (first_ids < 0)
        if not is_invalid.any():
            return keys, locations
        row = int(np.flatnonzero(is_invalid)[0])
        first = f"row {key_bytes(keys, row).hex()}: ids or location {locations[row]}"
        self._first = self._first or first
        self._count += int(is_invalid.sum())
        prefixes = np.unique(keys[:-1, is_invalid], axis=1).T.astype(">i8")
        self._prefixes.update(prefix.tobytes() for prefix in prefixes)
        return keys[:, ~is_invalid], locations[~is_invalid]

    def findings(self) -> list[Finding]:
        """Return the damage that the rows are, if there are any."""
        if not self._count:
            return []
        detail = f"{self._first} are out of range (as are {self._count} rows here in all)"
        return [Finding("damage", detail, str(self._path))]

    def key_ranges(self) -> list[KeyRange]:
        """Return the ranges of the keys of their ledgers, in order."""
        return [(prefix, prefix + b"\xff" * 8) for prefix in sorted(self._prefixes)]

    def raise_if_any(self) -> None:
        """Raise `CorruptionError` if there are such rows."""
        for finding in self.findings():
            raise CorruptionError(self._path, None, finding.detail)


def describe_unknown(unknown: UnknownRange, is_scoped: bool) -> Finding:
    """Return the finding for damage that makes the rows of a range of keys unknown. It names the
    ledger if all these keys are of a single one. `is_scoped`: keys are of scopes other than 0."""
    error, prefix_bytes = unknown.error(), 8 * location_words(is_scoped) - 8
    first, end = unknown.start[:prefix_bytes], (unknown.stop or b"")[:prefix_bytes]
    ledger_id = None
    if first == end and len(first) == prefix_bytes and _may_be_ledger(first, is_scoped):
        ledger_id = _ledger_of(Path(unknown.file), first, is_scoped)
    return Finding("damage", error.reason, error.file, error.offset, ledger_id)
