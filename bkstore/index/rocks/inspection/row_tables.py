"""Tables of a database's files and internal rows, with keys as ledgers and entries."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats import ledgerdata
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.ids import split_location
from bkstore.index.rocks.inspection.database_files import DatabaseFile
from bkstore.index.rocks.inspection.internal_rows import InternalRow
from bkstore.index.rocks.inspection.key_meanings import decode_key, describe_key
from bkstore.index.rocks.inspection.table_contents import TableSummary

_KINDS: dict[int, str] = {
    ValueType.DELETION: "delete",
    ValueType.VALUE: "put",
    ValueType.MERGE: "merge",
    ValueType.SINGLE_DELETION: "single-delete",
    ValueType.RANGE_DELETION: "range-delete",
}
_MAX_LOCATION = 2**63 - 1


class RowSource(NamedTuple):
    """Where rows are: the database's name, its index directory's number, the file's name, None for
    rows that are merged from several."""

    database_name: str
    dir_index: int
    file_name: str | None


class RocksFileRow(NamedTuple):
    """A row of `ROCKS_FILES`; the fields are its columns."""

    database: str
    dir_index: int
    file: str
    kind: str
    level: int | None = None
    file_bytes: int | None = None
    rows: int | None = None
    tombstones: int | None = None
    range_tombstones: int | None = None
    smallest_sequence: int | None = None
    largest_sequence: int | None = None
    first_key: str | None = None
    last_key: str | None = None
    epoch_number: int | None = None
    created: int | None = None
    compression: str | None = None


class RocksRow(NamedTuple):
    """A row of `ROCKS_ROWS`; the fields are its columns."""

    database: str
    dir_index: int
    file: str | None
    sequence: int | None
    kind: str
    scope_id: int | None
    ledger_id: int | None
    entry_id: int | None
    log_id: int | None
    position: int | None
    location: int | None
    end_key: str | None
    fenced: bool | None
    limbo: bool | None
    explicit_lac_entry: int | None
    master_key: bytes | None
    stored_key: bytes
    stored_value: bytes | None


def make_file_row(
    database_name: str, dir_index: int, file: DatabaseFile, counts: TableSummary | None
) -> RocksFileRow:
    """Return the row of a database's file in the table of files. A table file's columns come from
    the manifest, and from its own summary `counts` (None: not read); those of a write-ahead log
    from the summary of its rows."""
    row = RocksFileRow(database_name, dir_index, file.name, file.kind, file_bytes=file.size)
    if file.table is not None:
        table = file.table
        if counts is not None:
            row = row._replace(
                rows=counts.rows,
                tombstones=counts.tombstones,
                range_tombstones=counts.range_tombstones,
                compression=counts.compression,
            )
        return row._replace(
            level=table.level,
            smallest_sequence=table.smallest_sequence,
            largest_sequence=table.largest_sequence,
            first_key=describe_key(database_name, table.smallest_key),
            last_key=describe_key(database_name, table.largest_key),
            epoch_number=table.epoch_number or None,
            created=table.creation_time or None,
        )
    if file.summary is not None:
        log = file.summary
        return row._replace(
            rows=log.rows,
            tombstones=log.tombstones,
            range_tombstones=log.range_tombstones,
            smallest_sequence=log.smallest_sequence,
            largest_sequence=log.largest_sequence,
            first_key=_describe_key_or_none(database_name, log.first_key),
            last_key=_describe_key_or_none(database_name, log.last_key),
        )
    return row


def _describe_key_or_none(database_name: str, key: bytes | None) -> str | None:
    return None if key is None else describe_key(database_name, key)


def make_row(source: RowSource, row: InternalRow, show_keys: bool) -> RocksRow:
    """Return a row of `ROCKS_ROWS`. Without `show_keys`, master keys are null, and so is the stored
    value that has one."""
    database = source.database_name
    key = decode_key(database, row.key)
    scope_id, ledger_id = (None, None) if key.ledger is None else key.ledger.signed
    location = _decode_location(database, row)
    log_id, position = (None, None) if location is None else split_location(location)
    # A value of a database of ledgers has a master key, the hash of a password.
    has_master_key = database.startswith("ledgers") and row.kind == ValueType.VALUE
    state = _decode_state(database, row)
    return RocksRow(
        database=database,
        dir_index=source.dir_index,
        file=source.file_name,
        sequence=None if row.sequence < 0 else row.sequence,
        kind=_KINDS.get(row.kind, f"type {row.kind}"),
        scope_id=scope_id,
        ledger_id=ledger_id,
        entry_id=key.entry_id,
        log_id=log_id,
        position=position,
        location=location,
        end_key=describe_key(database, row.value) if row.kind == ValueType.RANGE_DELETION else None,
        fenced=None if state is None else state.fenced,
        limbo=None if state is None else state.limbo,
        explicit_lac_entry=None
        if state is None
        else explicit_lac_or_none(state.explicit_lac or b""),
        master_key=state.master_key if show_keys and state is not None else None,
        stored_key=row.key,
        stored_value=None if has_master_key and not show_keys else row.value,
    )


def _decode_location(database_name: str, row: InternalRow) -> int | None:
    """Return the location that a row puts; None for any other row, and for one that is invalid."""
    is_location = database_name.startswith("locations") and len(row.value) == 8
    if row.kind != ValueType.VALUE or not is_location:
        return None
    location = int.from_bytes(row.value, "big")
    return location if 0 < location <= _MAX_LOCATION else None


def _decode_state(database_name: str, row: InternalRow) -> ledgerdata.LedgerData | None:
    """Return the ledger state that is the value of a row in a database of ledgers; None for a row
    of another database, for a deletion, and for one whose key or value is invalid."""
    if not database_name.startswith("ledgers") or row.kind != ValueType.VALUE:
        return None
    if decode_key(database_name, row.key).ledger is None:
        return None
    try:
        return ledgerdata.decode(row.value)
    except CorruptionError:
        return None
