"""Which columns of a table are shown, piece by piece, and how wide they may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bkstore.cli.screen.cells import cell
from bkstore.cli.screen.default_columns import Look, look_of
from bkstore.ids import LedgerId
from bkstore.tables import Schema, Table
from bkstore.tables.table import Repeated

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


class ColumnChoice:
    """The columns of a table on a screen.

    They are those that are asked for; else the schema's default ones, but for columns that have
    nothing to say so far, or the same in all rows so far: that is `said` once. A column that has
    been shown stays.
    """

    def __init__(self, schema: Schema, shown: Shown) -> None:
        self.look = _asked(look_of(schema), schema, shown)
        self.said: dict[str, str] = {}
        self._loud: set[str] = set()

    def of(self, table: Table) -> list[str]:
        """Return the columns that a piece of at least one row needs."""
        said: dict[str, str] = {}
        for name in self.look.once:
            value = _same(table, name)
            if value is None or self.said.get(name, value) != value:
                self._loud.add(name)
            else:
                said[name] = value
        for name, silent in self.look.quiet.items():
            if name not in self._loud and _tells(table.columns[name], silent):
                self._loud.add(name)
        self.said = {name: value for name, value in said.items() if name not in self._loud}
        return self.names

    @property
    def silent(self) -> set[str]:
        """The columns that have had nothing to say."""
        return {*self.look.quiet} - self._loud

    @property
    def names(self) -> list[str]:
        """The columns that the pieces so far need; of no piece, those of a table of no rows."""
        return [name for name in self.look.columns if name not in self.silent | {*self.said}]


def _asked(look: Look, schema: Schema, shown: Shown) -> Look:
    if shown.by_default:
        return look
    columns = tuple(schema.names if shown.columns is None else shown.columns)
    rows = {column.name for column in schema.columns if column.kind == "rows"}
    cut = () if shown.wide else look.cut
    return Look(columns, cut=cut, drop=(), record=bool(rows & {*columns}))


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


def _tells(values: Any, silent: Any) -> bool:
    """Return whether any value is neither null nor the silent one."""
    if isinstance(values, Repeated):
        return bool(values.value is not None and values.value != silent)
    return any(value is not None and value != silent for value in plain_values(values))


def plain_values(values: Any) -> Iterable[Any]:
    """Return a column's values as Python has them."""
    found: Iterable[Any] = values.tolist() if hasattr(values, "tolist") else values
    return found


# -- widths


def total(widths: Iterable[int]) -> int:
    """Return the width of a line of columns that are so wide."""
    each = list(widths)
    return sum(each) + len(GAP) * (len(each) - 1)


def fitting(natural: Mapping[str, int], look: Look, room: int) -> list[str]:
    """Return the columns that fit a line, those that may be cut counted as cut.

    Those of `look.drop` go first, then the last ones; the first column stays.

    >>> look = Look(("a", "b", "c"), drop=("b",))
    >>> fitting({"a": 4, "b": 9, "c": 9}, look, 20)
    ['a', 'c']
    """
    names = list(natural)
    givers = [name for name in look.drop if name in names]
    givers += [name for name in reversed(names[1:]) if name not in givers]
    for name in givers:
        if total(_least(each, natural[each], look) for each in names) <= room:
            break
        names.remove(name)
    return names


def _least(name: str, width: int, look: Look) -> int:
    return min(width, max(_LEAST, len(name))) if name in (*look.cut, look.fold) else width


def narrowed(widths: Mapping[str, int], look: Look, room: int) -> dict[str, int]:
    """Return widths with columns that may be cut made narrower until the line fits, last first.

    >>> narrowed({"a": 10, "b": 60, "c": 60}, Look(("a", "b", "c"), cut=("b", "c")), 100)
    {'a': 10, 'b': 60, 'c': 24}
    """
    found = dict(widths)
    for name in reversed(look.cut):
        if name in found:
            over = max(0, total(found.values()) - room)
            found[name] = max(found[name] - over, _least(name, found[name], look))
    return found
