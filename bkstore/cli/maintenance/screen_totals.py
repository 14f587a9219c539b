"""Rows of `bkstore usage` for people: sizes in binary units, and a total of several bookies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bkstore.counts import size_text
from bkstore.tables import USAGE, Table
from bkstore.tables.columns import COLUMNS
from bkstore.tables.table import Schema, ScreenColumns

DETAIL = Schema(USAGE.name, USAGE.columns, ScreenColumns(tuple(USAGE.names), as_records=True))
"""`USAGE` with all numbers of a bookie, one a line."""

_TOTAL = "total"
_NOT_ADDED = ("bookie", "layout")


class _Size(int):
    """A number of bytes whose text has a binary unit."""

    def __str__(self) -> str:
        return size_text(int(self))


def for_screen(tables: Iterable[Table], *, exact: bool, has_total: bool) -> Iterator[Table]:
    """Yield the tables with sizes in binary units, unless `exact`; a row with the totals of `USAGE`
    follows with `has_total`. A total of which a part is unknown is null."""
    totals: dict[str, Any] | None = None
    for table in tables:
        if has_total:
            totals = _add(totals, table)
        yield table if exact else _with_units(table)
    if totals is not None:
        table = Table(USAGE, {column: [value] for column, value in totals.items()})
        yield table if exact else _with_units(table)


def _with_units(table: Table) -> Table:
    """Return the table with its sizes in bytes as texts with units."""
    columns = {
        column: _sizes(values) if _is_size(column) else values
        for column, values in table.columns.items()
    }
    return Table(table.schema, columns)


def _is_size(column: str) -> bool:
    return column in COLUMNS and COLUMNS[column].form == "size"


def _sizes(values: Iterable[int | None]) -> list[_Size | None]:
    return [None if value is None else _Size(value) for value in values]


def _add(totals: dict[str, Any] | None, table: Table) -> dict[str, Any]:
    """Return the totals, None for no rows so far, plus the rows of the table."""
    row_values = {column: list(values) for column, values in table.columns.items()}
    if totals is None:
        totals = dict.fromkeys(row_values, 0)
    totals |= {"bookie": _TOTAL, "layout": "-"}
    for column, values in row_values.items():
        if column not in _NOT_ADDED:
            is_known = totals[column] is not None and None not in values
            totals[column] = totals[column] + sum(values) if is_known else None
    return totals
