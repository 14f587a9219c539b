"""Tables of a database's files and internal rows, with keys as ledgers and entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats import ledgerdata
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.formats.rocksdb.log.write_batch import BatchRows
from bkstore.ids import split_location
from bkstore.index.rocks.inspection.database_files import DatabaseFile
from bkstore.index.rocks.inspection.key_meanings import decode_key, describe_key

_KINDS: dict[int, str] = {
    ValueType.DELETION: "delete",
    ValueType.VALUE: "put",
    ValueType.MERGE: "merge",
    ValueType.SINGLE_DELETION: "single-delete",
    ValueType.RANGE_DELETION: "range-delete",
}
_MAX_LOCATION = 2**63 - 1

FileCounts = tuple[int, int, int, str]
"""Rows, tombstones and range tombstones of a table file, and the name of its compression."""


class RowSource(NamedTuple):
    """Where rows are: the database's name, its index directory's number, the file's name, None for
    rows that are merged from several."""

    database_name: str
    dir_index: int
    file_name: str | None


class InternalRow(NamedTuple):
    """One internal row: its key without the trailer, and what that says. A sequence of -1 is not
    known."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


def iterate_rows(batches: Iterable[BatchRows]) -> Iterator[InternalRow]:
    """Yield the rows of write batches."""
    for batch in batches:
        numbers = zip(batch.sequences.tolist(), batch.kinds.tolist())
        for row, (sequence, kind) in enumerate(numbers):
            yield InternalRow(batch.key(row), sequence, kind, batch.value(row))


def file_cells(
    database_name: str, dir_index: int, file: DatabaseFile, counts: FileCounts | None
) -> tuple[Any, ...]:
    """Return a row of `ROCKS_FILES`; `counts` are those of a table, None if unknown."""
    head = (database_name, dir_index, file.name, file.kind)
    if file.table is not None:
        table = file.table
        keys = [describe_key(database_name, key) for key in (table.smallest_key, table.largest_key)]
        sequences = (table.smallest_sequence, table.largest_sequence)
        times = (table.epoch_number or None, table.creation_time or None)
        stated = (None,) * 4 if counts is None else counts
        return (*head, table.level, file.size, *stated[:3], *sequences, *keys, *times, stated[3])
    if file.summary is not None:
        summary = file.summary
        row_counts = (summary.rows, summary.tombstones, summary.range_tombstones)
        ends = [
            None if key is None else describe_key(database_name, key)
            for key in (summary.first_key, summary.last_key)
        ]
        sequences_or_none = (summary.smallest_sequence, summary.largest_sequence)
        return (*head, None, file.size, *row_counts, *sequences_or_none, *ends, *(None,) * 3)
    return (*head, None, file.size, *(None,) * 10)


def row_cells(source: RowSource, row: InternalRow, show_keys: bool) -> tuple[Any, ...]:
    """Return a row of `ROCKS_ROWS`. Without `show_keys`, master keys are null, and so is the stored
    value that has one."""
    name = source.database_name
    meaning = decode_key(name, row.key)
    kind = _KINDS.get(row.kind, f"type {row.kind}")
    ids = (None, None) if meaning.ledger is None else meaning.ledger.signed
    end_key = describe_key(name, row.value) if row.kind == ValueType.RANGE_DELETION else None
    location = _decode_location(name, row)
    parts = (None,) * 3 if location is None else (*split_location(location), location)
    state = _decode_state(name, row, show_keys)
    has_key = name.startswith("ledgers") and row.kind == ValueType.VALUE
    value = None if has_key and not show_keys else row.value
    ids_and_location = (*ids, meaning.entry_id, *parts)
    sequence = None if row.sequence < 0 else row.sequence
    return (*source, sequence, kind, *ids_and_location, end_key, *state, row.key, value)


def _decode_location(database_name: str, row: InternalRow) -> int | None:
    """Return the location that a row puts; None for any other row, and for one that is invalid."""
    is_location = database_name.startswith("locations") and len(row.value) == 8
    if row.kind != ValueType.VALUE or not is_location:
        return None
    location = int.from_bytes(row.value, "big")
    return location if 0 < location <= _MAX_LOCATION else None


def _decode_state(database_name: str, row: InternalRow, show_keys: bool) -> tuple[Any, ...]:
    """Return (fenced, limbo, entry of the explicit LAC, master key) of a ledger's row, or nulls."""
    nulls = (None,) * 4
    is_ledger = decode_key(database_name, row.key).ledger is not None
    if not database_name.startswith("ledgers") or not is_ledger or row.kind != ValueType.VALUE:
        return nulls
    try:
        state = ledgerdata.decode(row.value)
    except CorruptionError:
        return nulls
    lac = explicit_lac_or_none(state.explicit_lac) if state.explicit_lac else None
    return state.fenced, state.limbo, lac, state.master_key if show_keys else None
