"""Tables of the page: the first rows of a table in a stated order, never cut in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.report.findings.key_figures import (
    CLASSES,
    class_of,
    distinct_ledgers,
    numbers,
    ranks,
)
from bkstore.report.html.wording import (
    ABSENT,
    CATEGORY_WORDS,
    count,
    counted,
    ledger_name,
    ranges_text,
    scope_name,
    share,
    size,
)
from bkstore.report.sections import Section, Shown

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 100
"""Rows of each table that the page has."""

_TEXTS = ("category", "class", "flag", "groups", "log", "long", "missing", "quorums", "text")
_SORT_KEYS = {"ledger": "id", "scope": "id", **dict.fromkeys(_TEXTS, "t")}


class Head(NamedTuple):
    """A header cell: the script makes it a button, and sorts by the kind `key` says.

    `key` is n (numbers), id (ledgers, scopes) or t (text); `sorted` is for `aria-sort`.
    """

    heading: str
    key: str
    sorted: str = ""


class Cell(NamedTuple):
    """A cell: how it looks, what it says, the exact value on pointing, what it is sorted by.

    Looks: text, long and ranges (which wrap), number, id, chip (`tone` is its class); empty and,
    among numbers, blank.
    """

    look: str
    text: str
    title: str = ""
    value: str = ""
    tone: str = ""


class Listing(NamedTuple):
    """A table as `table.html.j2` takes it."""

    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]


_EMPTY = Cell("empty", ABSENT)
_BLANK = Cell("blank", ABSENT)


def listing(section: Section, table: pa.Table, place: str) -> Listing:
    """Return the table with its caption; `place` says where all rows are."""
    shown = first_rows(section, table)
    heads = tuple(_head(section, column) for column in section.columns)
    rows = tuple(tuple(_cell(c, row) for c in section.columns) for row in shown)
    return Listing(section.heading, _caption(section, table, place), heads, rows)


def _caption(section: Section, table: pa.Table, place: str) -> str:
    """Say how many rows there are, about how many ledgers if those are fewer, and where."""
    said = counted(table.num_rows, "row")
    kinds = [column.kind for column in section.columns]
    if "ledger" in kinds and (ledgers := distinct_ledgers(table)) not in (0, table.num_rows):
        said += f" about {counted(ledgers, 'ledger')}"
    if table.num_rows <= MOST_ROWS:
        return said
    return f"Showing {count(MOST_ROWS)} of {said}; all rows are {place}"


def first_rows(section: Section, table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows that come first in the section's order; ties as in the table.

    O(n log n) in the table's rows, on number columns only.
    """
    keys = [_key(table, name) for name in section.order]
    order = np.lexsort(keys[::-1]) if keys else np.arange(table.num_rows)
    chosen = order[:MOST_ROWS]
    rows: list[dict[str, Any]] = table.take(chosen).to_pylist()
    if section.name == "ledger_health":
        for row, at in zip(rows, class_of(table)[chosen].tolist()):
            row["class"] = CLASSES[at]
    return rows


def _key(table: pa.Table, name: str) -> npt.NDArray[Any]:
    if name == "category":
        return ranks(table)
    if name == "class":
        return class_of(table)
    if name == "severity":
        import pyarrow.compute as pc

        damage: npt.NDArray[Any] = pc.not_equal(table.column(name), "damage").to_numpy()
        return damage
    values = numbers(table, name.lstrip("-"), -1)
    return -values if name.startswith("-") else values


def _head(section: Section, column: Shown) -> Head:
    first = section.order[0] if section.order else ""
    down = column.column == first.lstrip("-") and first.startswith("-")
    return Head(column.heading, _sort_key(column), "descending" if down else "")


def _sort_key(column: Shown) -> str:
    return _SORT_KEYS.get(column.kind, "n")


def _cell(column: Shown, row: Mapping[str, Any]) -> Cell:
    maker = _CELLS.get(column.kind)
    if maker is not None:
        return maker(row)
    value = row[column.column]
    if value is None or value == "":
        return _BLANK if _sort_key(column) == "n" else _EMPTY
    return _VALUES[column.kind](value)


def _size(value: int) -> Cell:
    shown = size(value)
    return Cell("number", shown.text, title=shown.exact, value=str(value))


_VALUES: dict[str, Callable[[Any], Cell]] = {
    "text": lambda value: Cell("text", str(value)),
    "long": lambda value: Cell("long", str(value)),
    "number": lambda value: Cell("number", count(value)),
    # A ledger of no entries, or an open one, has -1 for its last entry: there is none.
    "entry": lambda value: Cell("number", str(value)) if value >= 0 else _BLANK,
    "size": _size,
    "share": lambda value: Cell("number", share(value, 1), value=f"{value:.6g}"),
    "decimal": lambda value: Cell("number", f"{value:,.1f}"),
    "flag": lambda value: Cell("text", "yes" if value else "no"),
    "category": lambda value: _chip(value),
}


def _chip(name: str) -> Cell:
    return Cell("chip", CATEGORY_WORDS.get(name, name), tone=name if name in CATEGORY_WORDS else "")


def _ledger(row: Mapping[str, Any]) -> Cell:
    if row["ledger_id"] is None:
        return _EMPTY
    return Cell("id", ledger_name(row["scope_id"] or 0, row["ledger_id"]))


def _missing(row: Mapping[str, Any]) -> Cell:
    if row["missing"]:
        return Cell("ranges", ranges_text(row["missing"]))
    if row["missing_groups"] is None:  # nobody knows
        return _EMPTY
    return _groups(row["missing_groups"])


def _groups(groups: list[list[int]]) -> Cell:
    """Show sequence groups: the span of each, and its stripe where it has one."""
    words = [
        f"{first}-{last + size - 1}" + (f" ({size} of {period})" if period else "")
        for first, last, size, period in groups[:3]
    ]
    if len(groups) > 3:
        words.append(f"and {counted(len(groups) - 3, 'more group')}")
    return Cell("ranges", ", ".join(words)) if words else _EMPTY


def _quorums(row: Mapping[str, Any]) -> Cell:
    sizes = (str(row[f"{n}_size"]) for n in ("ensemble", "write_quorum", "ack_quorum"))
    return Cell("text", "/".join(sizes))


_CELLS: dict[str, Callable[[Mapping[str, Any]], Cell]] = {
    "ledger": _ledger,
    "scope": lambda row: Cell("id", scope_name(row["scope_id"])),
    "missing": _missing,
    "groups": lambda row: _groups(row["surplus_groups"]),
    "class": lambda row: _chip(row["class"]),
    "log": lambda row: Cell("id", f"{row['log_id']:x}.log", title=row["file"]),
    "quorums": _quorums,
}
