"""Chooses which columns of a table are shown, as batches of rows arrive, and their widths."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from bkstore.cli.screen.cells import format_cell
from bkstore.ids import LedgerId
from bkstore.tables import Schema, Table
from bkstore.tables.columns import COLUMNS
from bkstore.tables.table import ConstantColumn, ScreenColumns

COLUMN_GAP = "   "
MIN_CUT_WIDTH = 12  # characters that a cut column keeps


class RequestedColumns(NamedTuple):
    """The columns that the user asked for, in order; `wide` shows all columns without cutting.
    `varied` columns are those that differ in later rows, so that none is in a caption."""

    columns: Sequence[str] | None = None
    wide: bool = False
    varied: Sequence[str] = ()

    @property
    def is_default(self) -> bool:
        """Whether the user asked for nothing in particular."""
        return self.columns is None and not self.wide


def screen_columns(schema: Schema) -> ScreenColumns:
    """Return how a table is shown unless the user asks otherwise: as its schema declares. Without
    a declaration all columns are shown, except the two that a screen's `ledger_id` represents;
    texts, bytes and lists may be cut, and a table with lists is shown as records."""
    if schema.screen is not None:
        return schema.screen
    represented = {"qualified_name", "scope_id"} if "ledger_id" in schema.names else set()
    return ScreenColumns(
        tuple(name for name in schema.names if name not in represented),
        may_cut=tuple(
            column.name for column in schema.columns if column.kind in ("string", "binary", "rows")
        ),
        as_records=any(column.kind == "rows" for column in schema.columns),
    )


def _idle_values(schema: Schema) -> dict[str, int | None]:
    """Return the columns that are hidden while all their values are null or this idle value: that
    of `COLUMNS`, or 0 (None if nullable) for others that the schema hides."""
    screen = screen_columns(schema)
    values: dict[str, int | None] = {}
    for name, _, nullable in schema.columns:
        declared = None if screen.keep_idle else COLUMNS.get(name)
        if declared and declared.idle is not None and name in screen.columns:
            values[name] = declared.idle
        elif name in screen.hide_idle:
            values[name] = None if nullable else 0
    return values


class ColumnChoice:
    """The columns of a table on a screen, as far as its rows are known: those that the user asked
    for, else the schema's default ones without idle columns and without those that had one value in
    all rows so far (`constant_values` has it, for the caption). Once shown, a column stays."""

    def __init__(self, schema: Schema, requested: RequestedColumns) -> None:
        self.screen = _requested_screen(schema, requested)
        self._idle_values = _idle_values(schema) if requested.is_default else {}
        self.constant_values: dict[str, str] = {}
        self._varied_columns = {*requested.varied}  # had several values, or one that is not idle

    def update(self, table: Table) -> list[str]:
        """Take a table of at least one row into account, and return the columns to show."""
        single_values: dict[str, str] = {}  # of this table
        # A caption has columns with one value, until a table has several or another one.
        for name in self.screen.caption:
            value = _single_value(table, name)
            if value is None or self.constant_values.get(name, value) != value:
                self._varied_columns.add(name)
            else:
                single_values[name] = value
        for name, idle in self._idle_values.items():
            if name not in self._varied_columns and _has_other_than(table.columns[name], idle):
                self._varied_columns.add(name)
        # A column that once varied stays in the table, even if it has one value here.
        self.constant_values = {
            name: value for name, value in single_values.items() if name not in self._varied_columns
        }
        return self.names

    @property
    def idle_columns(self) -> set[str]:
        """The columns with only idle values so far."""
        return {*self._idle_values} - self._varied_columns

    @property
    def names(self) -> list[str]:
        """The columns to show for the rows so far, or for an empty table if there were none."""
        hidden = self.idle_columns | {*self.constant_values}
        return [name for name in self.screen.columns if name not in hidden]


def _requested_screen(schema: Schema, requested: RequestedColumns) -> ScreenColumns:
    """Return how the requested columns are shown: all of them, as records if one has rows in
    its cells."""
    default = screen_columns(schema)
    if requested.is_default:
        return default
    columns = tuple(schema.names if requested.columns is None else requested.columns)
    list_columns = {column.name for column in schema.columns if column.kind == "rows"}
    may_cut = () if requested.wide else default.may_cut
    return ScreenColumns(columns, may_cut=may_cut, as_records=bool(list_columns & {*columns}))


def _single_value(table: Table, name: str) -> str | None:
    """Return a column's value as text if it has only one (a ledger id with its scope), else
    None."""
    values = table.columns[name]
    if isinstance(values, ConstantColumn):
        return format_cell(values.value)
    scopes: Iterable[Any] = repeat(0)
    if name == "ledger_id" and "scope_id" in table.columns:
        scopes = plain_values(table.columns["scope_id"])
    scoped_values = {*zip(plain_values(values), scopes)}
    if len(scoped_values) > 1:
        return None
    ((value, scope),) = scoped_values
    return str(LedgerId.from_signed(scope, value)) if scope else format_cell(value)


def _has_other_than(values: Any, idle_value: int | None) -> bool:
    if isinstance(values, ConstantColumn):
        return bool(values.value is not None and values.value != idle_value)
    return any(value is not None and value != idle_value for value in plain_values(values))


def plain_values(values: Any) -> Iterable[Any]:
    """Return a column's values as Python objects."""
    result: Iterable[Any] = values.tolist() if hasattr(values, "tolist") else values
    return result


# -- widths


def line_width(widths: Iterable[int]) -> int:
    """Return the width of a line of columns with these widths."""
    return sum(width + len(COLUMN_GAP) for width in widths) - len(COLUMN_GAP)


def columns_that_fit(
    widths: Mapping[str, int], screen: ScreenColumns, room: int, uncut: Container[str] = ()
) -> list[str]:
    """Return the columns that fit into `room` characters, after cutting those that may be cut.
    Columns of `screen.drop_first` are left out first, then from the last; the first column stays.
    Those of `drop_first` are also left out so that the columns `uncut` keep their widths, if that
    is enough for them.

    >>> screen = ScreenColumns(("a", "b", "c"), drop_first=("b",), may_cut=("c",))
    >>> columns_that_fit({"a": 4, "b": 9, "c": 20}, screen, 32)
    ['a', 'b', 'c']
    >>> columns_that_fit({"a": 4, "b": 9, "c": 20}, screen, 32, uncut=("c",))
    ['a', 'c']
    """
    names = list(widths)
    removable = [name for name in screen.drop_first if name in names]
    # Leave out as few of these as let the columns `uncut` keep their widths.
    for dropped in range(len(removable) + 1):
        kept = [name for name in names if name not in removable[:dropped]]
        least = (widths[n] if n in uncut else min_width(n, widths[n], screen) for n in kept)
        if line_width(least) <= room:
            return kept
    # If that is not enough, cut all that may be cut, and leave out one column after the other.
    removable += [name for name in reversed(names[1:]) if name not in removable]
    for name in removable:
        if line_width(min_width(each, widths[each], screen) for each in names) <= room:
            break
        names.remove(name)
    return names


def min_width(name: str, width: int, screen: ScreenColumns) -> int:
    """Return the width below which a column is not cut."""
    may_cut = name in (*screen.may_cut, screen.wrap)
    return min(width, max(MIN_CUT_WIDTH, len(name))) if may_cut else width


def narrow_to_fit(widths: Mapping[str, int], screen: ScreenColumns, room: int) -> dict[str, int]:
    """Return the widths after narrowing the columns that may be cut, last first, to fit `room`.

    >>> screen = ScreenColumns(("a", "b", "c"), may_cut=("b", "c"))
    >>> narrow_to_fit({"a": 10, "b": 60, "c": 60}, screen, 100)
    {'a': 10, 'b': 60, 'c': 24}
    """
    result = dict(widths)
    for name in reversed(screen.may_cut):
        if name in result:
            excess = max(0, line_width(result.values()) - room)
            result[name] = max(result[name] - excess, min_width(name, result[name], screen))
    return result
