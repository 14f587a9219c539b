"""A Parquet file of a dump: its description in the manifest, compared with its footer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.counts import format_count
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, LedgerRange
from bkstore.tables import ENTRIES, ENTRIES_WITH_MESSAGES, Schema

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class RowGroup(NamedTuple):
    """A row group of a file. `first` and `last` are its end ledgers, None if not known.

    They are derived from statistics and valid for sorted files. Parquet's minimum and maximum are
    signed: if a group has ids of both signs, they do not tell which ledger is the first.
    """

    rows: int
    first: LedgerId | None
    last: LedgerId | None


@dataclass(frozen=True)
class DumpFile:
    """A Parquet file of a dump, as the manifest describes it; its footer has not been read.

    `has_one_bookie`: all rows are of `bookie`, as in every dump; readers verify it. `ledger_range`:
    the range of ledgers of a sorted file, None if it is not declared sorted.
    """

    path: str
    table: str
    bookie: str
    rows: int
    has_one_bookie: bool = True
    ledger_range: LedgerRange | None = None


def parse_file_object(path: str, file_object: Mapping[str, Any], table: str) -> DumpFile:
    """Return a file from its manifest object; raises `CorruptionError` for an invalid range."""
    try:
        ledgers = LedgerRange.from_json(file_object, table)
    except InvalidArgument as error:
        raise CorruptionError(path, None, f"the manifest is invalid: {error}") from None
    return DumpFile(path, table, file_object["bookie"], file_object["rows"], True, ledgers)


def check_footer(
    location: str,
    file: pq.ParquetFile,
    schema: Schema,
    columns: Sequence[str] | None,
    rows: int | None,
) -> None:
    """Verify a file's columns (all of them, or the given ones) and, unless None, its row count. The
    table `entries` may have the columns of Pulsar's messages, too.

    Raises `UnsupportedLayout` for other columns, `CorruptionError` for another row count. If
    `columns` are given, text columns may have Arrow's type large_string.
    """
    actual, declared = file.schema_arrow, schema.to_arrow()
    if schema.name == ENTRIES.name and actual.names == ENTRIES_WITH_MESSAGES.names:
        declared = ENTRIES_WITH_MESSAGES.to_arrow()
    # All columns: exactly those that are declared, in order.
    if columns is None:
        unexpected = [f"{column.name} {column.type}" for column in actual if column not in declared]
        missing = [column.name for column in declared if column.name not in actual.names]
        if actual.names != declared.names or actual.types != declared.types:
            lack = f", it lacks {', '.join(missing)}" if missing else ""
            reason = f"it has {', '.join(unexpected or actual.names)}{lack}"
            raise _wrong_columns_error(location, schema, reason)
    # Some columns: each once, wherever it is, of the declared type.
    for expected in (column for column in declared if column.name in (columns or ())):
        positions = actual.get_all_field_indices(expected.name)
        if len(positions) != 1:
            raise _wrong_columns_error(location, schema, f"no column {expected.name}")
        column_type = actual.field(positions[0]).type
        if column_type != expected.type and str(column_type) != f"large_{expected.type}":
            reason = f"{expected.name} is {column_type}, not {expected.type}"
            raise _wrong_columns_error(location, schema, reason)
    if rows is not None and file.metadata.num_rows != rows:
        row_count = format_count(file.metadata.num_rows, "row")
        raise CorruptionError(location, None, f"has {row_count}, the manifest says {rows}")


def _wrong_columns_error(location: str, schema: Schema, reason: str) -> UnsupportedLayout:
    return UnsupportedLayout(f"{location}: not the table {schema.name} of a dump: {reason}")


def has_only_bookie(footer: pq.FileMetaData, bookie: str) -> bool:
    """Return whether the footer's statistics prove that all rows are of this bookie, none null."""
    column = _column_numbers(footer).get("bookie")
    if column is None:
        return not footer.num_row_groups  # true of a file without rows only
    for group in range(footer.num_row_groups):
        statistics = _min_max(footer, group, column)
        # Compared as bytes, because the statistics of a damaged file may not be UTF-8.
        if statistics is None or not statistics.min_raw == statistics.max_raw == bookie.encode():
            return False
    return not has_nulls(footer, "bookie")


def has_nulls(footer: pq.FileMetaData, column_name: str) -> bool:
    """Return whether a column may have nulls according to statistics."""
    column = _column_numbers(footer)[column_name]
    for group in range(footer.num_row_groups):
        statistics: Any = footer.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return True
    return False


def row_groups(footer: pq.FileMetaData) -> tuple[RowGroup, ...]:
    """Return a file's row groups, each with its first and last ledger if the file has the columns
    of ledger ids, and statistics show them; 10 us per group."""
    columns = _column_numbers(footer)
    groups = []
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group).num_rows
        ends: tuple[LedgerId | None, LedgerId | None] = (None, None)
        if columns.keys() >= set(LEDGER_COLUMNS):
            statistics = [_min_max(footer, group, columns[name]) for name in LEDGER_COLUMNS]
            ends = _end_ledgers(*statistics)
        groups.append(RowGroup(rows, *ends))
    return tuple(groups)


def check_row_groups(
    location: str, groups: Sequence[RowGroup], ledger_range: LedgerRange | None = None
) -> None:
    """Raise `CorruptionError` if statistics show that a file is not sorted, though its manifest
    says so, or that it has ledgers outside of `ledger_range`. O(row groups).
    """
    # The first and last ledgers of the row groups, by number of the group, where they are known.
    known_ends = [
        (number, group.first, group.last)
        for number, group in enumerate(groups)
        if group.first and group.last
    ]
    for (before, _, last), (after, first, _) in pairwise(known_ends):
        if first < last:
            ends = f"row group {before} ends with {last}"
            order = f"row group {after} begins with ledger {first}, {ends}"
            reason = f"the manifest says that it is sorted, but {order}"
            raise CorruptionError(location, None, reason)
    if ledger_range is None:
        return
    for _, first, last in known_ends:
        if not ledger_range.first <= first <= last <= ledger_range.last:
            ledger = first if first < ledger_range.first else last
            raise outside_range_error(location, ledger, ledger_range)


def outside_range_error(
    location: str, ledger: tuple[int, int], ledger_range: LedgerRange
) -> CorruptionError:
    """Return the error for a file with a ledger outside the range in its manifest."""
    scope, number = ledger  # not a LedgerId, as it may be invalid: in scope 0 above 2^63-1
    name = f"{scope:016x}{number:016x}" if scope else str(number)
    expected = f"the manifest says that its ledgers are {ledger_range.first} to {ledger_range.last}"
    return CorruptionError(location, None, f"has ledger {name}, {expected}")


def _column_numbers(footer: pq.FileMetaData) -> dict[str, int]:
    return {footer.schema.column(column).path: column for column in range(footer.num_columns)}


def _min_max(footer: pq.FileMetaData, group: int, column: int) -> Any:
    statistics = footer.row_group(group).column(column).statistics
    return statistics if statistics is not None and statistics.has_min_max else None


def _end_ledgers(scope: Any, ledger: Any) -> tuple[LedgerId | None, LedgerId | None]:
    """Return the first and last ledger of a row group by the statistics of its columns. These order
    ids as signed numbers, the rows as unsigned ones: (None, None) unless the row group has one
    scope and ledger ids of one sign, for which both orders are the same."""
    if scope is None or ledger is None or scope.min != scope.max:
        return None, None
    if ledger.min < 0 <= ledger.max:
        return None, None
    try:
        return tuple(LedgerId.from_signed(scope.min, number) for number in (ledger.min, ledger.max))  # type: ignore[return-value]
    except InvalidArgument:
        return None, None
