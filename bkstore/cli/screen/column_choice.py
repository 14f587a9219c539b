"""Which columns of a table are shown, piece by piece, and how wide they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bkstore.cli.screen.cells import cell
from bkstore.ids import LedgerId
from bkstore.tables import Schema, Table
from bkstore.tables.columns import COLUMNS
from bkstore.tables.table import Repeated, ScreenColumns

GAP = "   "
_LEAST = 12  # characters that stay of a column that is cut


class Shown(NamedTuple):
    """What is asked for: these columns in this order; `wide`: nothing left out, nothing cut."""

    columns: Sequence[str] | None = None
    wide: bool = False

    @property
    def by_default(self) -> bool:
        """Whether nothing is asked for."""
        return self.columns is None and not self.wide


def screen_columns(schema: Schema) -> ScreenColumns:
    """Return how a table of this schema is shown where nothing is asked for.

    One whose schema does not say it has all columns, but for what `ledger_id` stands for. Texts,
    bytes and lists may be cut; a row with lists is a record.
    """
    if schema.screen is not None:
        return schema.screen
    beside = {"qualified_name", "scope_id"} if "ledger_id" in schema.names else set()
    return ScreenColumns(
        tuple(name for name in schema.names if name not in beside),
        cut=tuple(c.name for c in schema.columns if c.kind in ("string", "binary", "rows")),
        record=any(column.kind == "rows" for column in schema.columns),
    )


def idle_values(schema: Schema) -> dict[str, int | None]:
    """Return the columns that are left out while they have nothing to say: null or this value."""
    screen = screen_columns(schema)
    values: dict[str, int | None] = {}
    for name, _, nullable in schema.columns:
        known = COLUMNS.get(name)
        if known and known.idle is not None and name in screen.columns:
            values[name] = known.idle
        elif name in screen.quiet:
            values[name] = None if nullable else 0
    return values


class ColumnChoice:
    """The columns of a table on a screen.

    They are those that are asked for; else the schema's default ones, but for columns that have
    nothing to say so far, or the same in all rows so far: that is `said` once. A column that has
    been shown stays.
    """

    def __init__(self, schema: Schema, shown: Shown) -> None:
        self.screen = _asked(screen_columns(schema), schema, shown)
        self._idle = idle_values(schema) if shown.by_default else {}
        self.said: dict[str, str] = {}
        self._loud: set[str] = set()

    def of(self, table: Table) -> list[str]:
        """Return the columns that a piece of at least one row needs."""
        said: dict[str, str] = {}
        for name in self.screen.once:
            value = _same(table, name)
            if value is None or self.said.get(name, value) != value:
                self._loud.add(name)
            else:
                said[name] = value
        for name, idle in self._idle.items():
            if name not in self._loud and _tells(table.columns[name], idle):
                self._loud.add(name)
        self.said = {name: value for name, value in said.items() if name not in self._loud}
        return self.names

    @property
    def silent(self) -> set[str]:
        """The columns that have had nothing to say."""
        return {*self._idle} - self._loud

    @property
    def names(self) -> list[str]:
        """The columns that the pieces so far need; of no piece, those of a table of no rows."""
        return [name for name in self.screen.columns if name not in self.silent | {*self.said}]


def _asked(default: ScreenColumns, schema: Schema, shown: Shown) -> ScreenColumns:
    if shown.by_default:
        return default
    columns = tuple(schema.names if shown.columns is None else shown.columns)
    rows = {column.name for column in schema.columns if column.kind == "rows"}
    cut = () if shown.wide else default.cut
    return ScreenColumns(columns, cut=cut, record=bool(rows & {*columns}))


def _same(table: Table, name: str) -> str | None:
    """Return the text of the one value that a column has, None if it has several."""
    values = table.columns[name]
    if isinstance(values, Repeated):
        return cell(values.value)
    scopes = table.columns.get("scope_id") if name == "ledger_id" else None
    found = {*zip(plain_values(values), [0] * len(values) if scopes is None else _all(scopes))}
    if len(found) > 1:
        return None
    ((value, scope),) = found
    return cell(value) if not scope else str(LedgerId.from_signed(scope, value))


def _all(values: Any) -> list[Any]:
    return list(plain_values(values))


def _tells(values: Any, idle: int | None) -> bool:
    """Return whether any value is neither null nor the idle one."""
    if isinstance(values, Repeated):
        return bool(values.value is not None and values.value != idle)
    return any(value is not None and value != idle for value in plain_values(values))


def plain_values(values: Any) -> Iterable[Any]:
    """Return a column's values as Python has them."""
    found: Iterable[Any] = values.tolist() if hasattr(values, "tolist") else values
    return found


# -- widths


def total(widths: Iterable[int]) -> int:
    """Return the width of a line of columns that are so wide."""
    each = list(widths)
    return sum(each) + len(GAP) * (len(each) - 1)


def fitting(natural: Mapping[str, int], screen: ScreenColumns, room: int) -> list[str]:
    """Return the columns that fit a line, those that may be cut counted as cut.

    Those of `screen.drop` go first, then the last ones; the first column stays.

    >>> screen = ScreenColumns(("a", "b", "c"), drop=("b",))
    >>> fitting({"a": 4, "b": 9, "c": 9}, screen, 20)
    ['a', 'c']
    """
    names = list(natural)
    givers = [name for name in screen.drop if name in names]
    givers += [name for name in reversed(names[1:]) if name not in givers]
    for name in givers:
        if total(_least(each, natural[each], screen) for each in names) <= room:
            break
        names.remove(name)
    return names


def _least(name: str, width: int, screen: ScreenColumns) -> int:
    return min(width, max(_LEAST, len(name))) if name in (*screen.cut, screen.fold) else width


def narrowed(widths: Mapping[str, int], screen: ScreenColumns, room: int) -> dict[str, int]:
    """Return widths with columns that may be cut made narrower until the line fits, last first.

    >>> screen = ScreenColumns(("a", "b", "c"), cut=("b", "c"))
    >>> narrowed({"a": 10, "b": 60, "c": 60}, screen, 100)
    {'a': 10, 'b': 60, 'c': 24}
    """
    found = dict(widths)
    for name in reversed(screen.cut):
        if name in found:
            over = max(0, total(found.values()) - room)
            found[name] = max(found[name] - over, _least(name, found[name], screen))
    return found
