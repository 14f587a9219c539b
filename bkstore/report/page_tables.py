"""Tables of the page: the first rows in a stated order, with a note if rows are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries
from bkstore.ledger_metadata import LedgerOwners
from bkstore.report.findings.health_classes import HEALTH_CLASSES, category_ranks, class_ranks
from bkstore.report.findings.table_columns import count_ledgers, number_column
from bkstore.report.findings.topics import owner_name
from bkstore.report.html.value_formats import (
    ABSENT,
    CATEGORY_WORDS,
    counted,
    format_share,
    format_size,
    ledger_name,
    scope_name,
)
from bkstore.report.sections import Section, ShownColumn

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 100
"""Maximum number of rows of each table on the page."""

_LISTED_RUNS = 5  # ranges of entries in a cell
_TEXT_KINDS = (
    "category",
    "class",
    "flag",
    "groups",
    "log",
    "long",
    "missing",
    "owner",
    "quorums",
    "text",
)
_NUMBER_KEY = "n"
_SORT_KEYS = {"ledger": "id", "scope": "id", **dict.fromkeys(_TEXT_KINDS, "t")}


class HeaderCell(NamedTuple):
    """A header cell; sorts by `key`: n (numbers), id or t (text). `sorted` is for `aria-sort`."""

    heading: str
    key: str
    sorted: str = ""


class TableCell(NamedTuple):
    """A cell: its look, its text, the exact value as a tooltip, and the value to sort by.

    Looks: text, long, owner and ranges (these wrap), number, id, chip (of class `tone`), empty, and
    blank.
    """

    look: str
    text: str
    title: str = ""
    value: str = ""
    tone: str = ""


class PageTable(NamedTuple):
    """A table for `pieces.html.j2`."""

    name: str
    caption: str
    heads: tuple[HeaderCell, ...]
    rows: tuple[tuple[TableCell, ...], ...]


_OWNER_COLUMN = ShownColumn("Topic", "owner", "ledger_owner")
_NO_TEXT_CELL = TableCell("empty", ABSENT)
_NO_NUMBER_CELL = TableCell("blank", ABSENT)


def make_page_table(
    section: Section, table: pa.Table, all_rows_note: str, owners: LedgerOwners | None = None
) -> PageTable:
    """Return the listing of a table; `all_rows_note` says in the caption where all rows are. With
    `owners`, the topic of each ledger is beside it, if any of the rows has one."""
    shown = first_rows(section, table)
    columns = section.columns
    if owners and _add_owner_names(shown, owners):
        columns = _insert_owner(columns)
    heads = tuple(_make_header_cell(section, column) for column in columns)
    rows = tuple(tuple(_make_cell(column, row) for column in columns) for row in shown)
    return PageTable(section.heading, _make_caption(section, table, all_rows_note), heads, rows)


def _add_owner_names(rows: list[dict[str, Any]], owners: LedgerOwners) -> bool:
    """Add to each row that is about a ledger what it belongs to; return whether any is known."""
    for row in rows:
        if row.get("ledger_id") is not None:
            row["ledger_owner"] = owner_name(owners, row["scope_id"] or 0, row["ledger_id"])
    return any(row.get("ledger_owner") for row in rows)


def _insert_owner(columns: tuple[ShownColumn, ...]) -> tuple[ShownColumn, ...]:
    """Return the columns with that of owners behind the ledger, if they have none yet."""
    if any(column.table_column == "owner" for column in columns):
        return columns
    inserted: list[ShownColumn] = []
    for column in columns:
        inserted.append(column)
        if column.kind == "ledger":
            inserted.append(_OWNER_COLUMN)
    return tuple(inserted)


def _make_caption(section: Section, table: pa.Table, all_rows_note: str) -> str:
    """Return how many rows there are, about how many ledgers, and where all of them are."""
    row_text = counted(table.num_rows, "row")
    kinds = [column.kind for column in section.columns]
    if "ledger" in kinds and (ledgers := count_ledgers(table)) not in (0, table.num_rows):
        row_text += f" about {counted(ledgers, 'ledger')}"
    if table.num_rows <= MAX_ROWS:
        return row_text
    return f"Showing {MAX_ROWS:,} of {row_text}; all rows are {all_rows_note}"


def first_rows(section: Section, table: pa.Table) -> list[dict[str, Any]]:
    """Return the first rows in the section's order; ties keep the table's order. O(n log n)."""
    keys = [_sort_values(table, name) for name in section.order]
    # `lexsort` takes the most important key last.
    order = np.lexsort(keys[::-1]) if keys else np.arange(table.num_rows)
    chosen = order[:MAX_ROWS]
    rows: list[dict[str, Any]] = table.take(chosen).to_pylist()
    if section.name == "ledger_health":  # the class is computed: not a column of the table
        for row, class_index in zip(rows, class_ranks(table)[chosen].tolist()):
            row["class"] = HEALTH_CLASSES[class_index]
    return rows


def _sort_values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return for each row the value of a column that it is sorted by, ascending.

    A category, class or severity becomes a rank, 0 for the worst. Other columns are numbers, with
    -1 for null; "-" before the name negates them, so that the largest comes first.
    """
    if name == "category":
        return category_ranks(table)
    if name == "class":
        if name not in table.column_names:  # of a ledger's health
            return class_ranks(table)
        # Of leaks, whose table begins with the worst class: number classes as they first appear.
        classes = table.column(name).combine_chunks().dictionary_encode()
        codes: npt.NDArray[Any] = classes.indices.to_numpy()
        return codes
    if name == "severity":
        import pyarrow.compute as pc

        # False sorts before True, so damage before oddities.
        is_no_damage: npt.NDArray[Any] = pc.not_equal(table.column(name), "damage").to_numpy()
        return is_no_damage
    values = number_column(table, name.lstrip("-"), -1)
    return -values if name.startswith("-") else values


def _make_header_cell(section: Section, column: ShownColumn) -> HeaderCell:
    first_order = section.order[0] if section.order else ""
    is_descending = column.table_column == first_order.lstrip("-") and first_order.startswith("-")
    return HeaderCell(column.heading, _sort_key(column), "descending" if is_descending else "")


def _sort_key(column: ShownColumn) -> str:
    return _SORT_KEYS.get(column.kind, _NUMBER_KEY)


def _make_cell(column: ShownColumn, row: Mapping[str, Any]) -> TableCell:
    """Return the cell of a column: some kinds combine columns of the row, others show one value."""
    make_cell = _CELL_OF_ROW.get(column.kind)
    if make_cell is not None:
        return make_cell(row)
    value = row.get(column.table_column)
    if value is None or value == "":
        return _NO_NUMBER_CELL if _sort_key(column) == _NUMBER_KEY else _NO_TEXT_CELL
    return _CELL_OF_VALUE[column.kind](value)


_CELL_OF_VALUE: dict[str, Callable[[Any], TableCell]] = {
    "text": lambda value: TableCell("text", str(value)),
    "long": lambda value: TableCell("long", str(value)),
    "owner": lambda value: TableCell("owner", value),
    "number": lambda value: TableCell("number", f"{value:,}"),
    # An empty or open ledger has -1 for its last entry.
    "entry": lambda value: TableCell("number", str(value)) if value >= 0 else _NO_NUMBER_CELL,
    "size": lambda value: TableCell("number", *format_size(value), str(value)),
    "share": lambda value: TableCell("number", format_share(value, 1), value=f"{value:.6g}"),
    "decimal": lambda value: TableCell("number", f"{value:,.1f}"),
    "flag": lambda value: TableCell("text", "yes" if value else "no"),
    "category": lambda value: _chip_cell(value),
}


def _chip_cell(name: str) -> TableCell:
    tone = name if name in CATEGORY_WORDS else ""
    return TableCell("chip", CATEGORY_WORDS.get(name, name), tone=tone)


def _ledger_cell(row: Mapping[str, Any]) -> TableCell:
    if row["ledger_id"] is None:
        return _NO_TEXT_CELL
    return TableCell("id", ledger_name(row["scope_id"] or 0, row["ledger_id"]))


def _entries_cell(groups: list[list[int]] | None) -> TableCell:
    """Return a cell of the entries of sequence groups; none, or null if they are not known."""
    if not groups:
        return _NO_TEXT_CELL
    return TableCell("ranges", format_entries(Availability.from_groups(groups), _LISTED_RUNS))


def _quorums_cell(row: Mapping[str, Any]) -> TableCell:
    sizes = (str(row[f"{name}_size"]) for name in ("ensemble", "write_quorum", "ack_quorum"))
    return TableCell("text", "/".join(sizes))


_CELL_OF_ROW: dict[str, Callable[[Mapping[str, Any]], TableCell]] = {
    "ledger": _ledger_cell,
    "scope": lambda row: TableCell("id", scope_name(row["scope_id"])),
    "missing": lambda row: _entries_cell(row["missing_groups"]),
    "groups": lambda row: _entries_cell(row["surplus_groups"]),
    "class": lambda row: _chip_cell(row["class"]),
    "log": lambda row: TableCell("id", f"{row['log_id']:x}.log", title=row["file"]),
    "quorums": _quorums_cell,
}
