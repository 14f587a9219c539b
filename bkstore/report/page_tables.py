"""Tables of the page: the first rows of a table in a stated order, never cut in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.report.findings.key_figures import CLASSES, class_of, numbers, ranks
from bkstore.report.html.markup import Html, tag
from bkstore.report.html.wording import (
    ABSENT,
    CATEGORY_WORDS,
    count,
    counted,
    ledger_name,
    ranges_text,
    scope_name,
    share,
    size_text,
)
from bkstore.report.sections import Section, Shown

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MOST_ROWS", "first_rows", "listing"]

MOST_ROWS = 100
"""Rows of each table that the page has."""

_EMPTY = tag("td", ABSENT, class_="dim")
_SORT_KEYS = {"ledger": "id", "scope": "id", "log": "t", "text": "t", "long": "t", "flag": "t"}


def listing(section: Section, table: pa.Table, place: str) -> Html:
    """Return the table with its caption; `place` says where all rows are."""
    shown = first_rows(section, table)
    heads = [_head(section, column) for column in section.columns]
    rows = [tag("tr", *(_cell(c, row) for c in section.columns)) for row in shown]
    caption = counted(table.num_rows, "row")
    if len(shown) < table.num_rows:
        caption = (
            f"Showing {count(len(shown))} of {count(table.num_rows)} rows; all rows are {place}"
        )
    whole = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
    )
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=section.heading)


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


def _head(section: Section, column: Shown) -> Html:
    """Return a header cell; the script makes it a button, and sorts by the kind of `data-k`."""
    first = section.order[0] if section.order else ""
    sorted_by = column.column == first.lstrip("-") and first.startswith("-")
    kind = _SORT_KEYS.get(column.kind, "n")
    if column.kind in ("category", "class", "missing", "groups", "quorums"):
        kind = "t"
    return tag(
        "th",
        column.heading,
        scope="col",
        data_k=kind,
        class_="n" if kind == "n" else None,
        aria_sort="descending" if sorted_by else None,
    )


def _cell(column: Shown, row: Mapping[str, Any]) -> Html:
    maker = _CELLS.get(column.kind)
    if maker is not None:
        return maker(row)
    value = row[column.column]
    return _EMPTY if value is None or value == "" else _VALUES[column.kind](value)


def _number(value: int) -> Html:
    return tag("td", count(value), class_="n")


def _size(value: int) -> Html:
    return tag("td", size_text(value), class_="n", title=f"{count(value)} bytes", data_v=value)


def _share(value: float) -> Html:
    return tag("td", share(value, 1), class_="n", data_v=f"{value:.6g}")


def _text(value: Any) -> Html:
    return tag("td", str(value))


_VALUES: dict[str, Callable[[Any], Html]] = {
    "text": _text,
    "long": lambda value: tag("td", str(value), class_="long"),
    "number": _number,
    "entry": lambda value: tag("td", str(value), class_="n"),
    "size": _size,
    "share": _share,
    "decimal": lambda value: tag("td", f"{value:,.1f}", class_="n"),
    "flag": lambda value: _text("yes" if value else "no"),
    "category": lambda value: _chip(value),
}


def _chip(name: str) -> Html:
    words = CATEGORY_WORDS.get(name, name)
    return tag("td", tag("span", words, class_=f"chip c-{name}" if words != name else "chip"))


def _ledger(row: Mapping[str, Any]) -> Html:
    if row["ledger_id"] is None:
        return _EMPTY
    return tag("td", tag("code", ledger_name(row["scope_id"] or 0, row["ledger_id"])))


def _missing(row: Mapping[str, Any]) -> Html:
    if row["missing"]:
        return tag("td", ranges_text(row["missing"]))
    if row["missing_groups"] is None:  # nobody knows
        return _EMPTY
    return _groups(row["missing_groups"])


def _groups(groups: list[list[int]]) -> Html:
    """Show sequence groups: the span of each, and its stripe where it has one."""
    words = [
        f"{first}-{last + size - 1}" + (f" ({size} of {period})" if period else "")
        for first, last, size, period in groups[:3]
    ]
    if len(groups) > 3:
        words.append(f"and {counted(len(groups) - 3, 'more group')}")
    return tag("td", ", ".join(words)) if words else _EMPTY


_CELLS: dict[str, Callable[[Mapping[str, Any]], Html]] = {
    "ledger": _ledger,
    "scope": lambda row: tag("td", tag("code", scope_name(row["scope_id"]))),
    "missing": _missing,
    "groups": lambda row: _groups(row["surplus_groups"]),
    "class": lambda row: _chip(row["class"]),
    "log": lambda row: tag("td", tag("code", f"{row['log_id']:x}.log"), title=row["file"]),
    "quorums": lambda row: _text(
        "/".join(str(row[f"{n}_size"]) for n in ("ensemble", "write_quorum", "ack_quorum"))
    ),
}
