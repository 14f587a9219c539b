"""The tables of a document, and numbers as tables and findings write them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools.lab.document import Document
from tools.lab.experiment import Row, Rows

Parted = Callable[[Row], str]

Columns = Sequence[dict[str, Any]]
"""Columns as documents have them: name, label, unit, kind."""


def shown(value: Any) -> str:
    """Return a value as a table shows it: three digits or all before the point, "" for None.

    >>> shown(0.012345), shown(1234567.8), shown(None), shown(3), shown(False)
    ('0.0123', '1,234,568', '', '3', 'NO')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shown_missed(value: float, limit: float) -> str:
    """Return a figure that is not as the limit demands, so that it does not read as the limit.

    >>> shown_missed(1.4975, 1.5), shown_missed(2.003, 2), shown_missed(1.2, 1.5)
    ('1.49', '2.01', '1.2')
    """
    if shown(value) != shown(float(limit)):
        return shown(value)
    step = 10.0 ** min(math.floor(math.log10(abs(value))) - 2, 0) if value else 0.01
    towards = math.ceil if value > limit else math.floor
    return shown(round(towards(value / step) * step, 10))


def tables_of(columns: Columns, rows: Rows, parted: Parted) -> Sequence[tuple[str, Columns, Rows]]:
    """Return the tables of some rows: titles, columns with values, rows."""
    titles = dict.fromkeys(parted(row) for row in rows)
    found = []
    for title in titles:
        mine = [row for row in rows if parted(row) == title]
        wanted = [
            column
            for column in columns
            if column["kind"] != "kept"
            and any(row[column["name"]] not in (None, "") for row in mine)
        ]
        found.append((title, wanted, mine))
    return found


def _words(column: dict[str, Any], rows: Rows) -> bool:
    return any(isinstance(row[column["name"]], str | bool) for row in rows)


def print_document(document: Document, parted: Parted = lambda _: "") -> None:
    """Print the rows as tables, then what was found, then what it was made with."""
    wide = None if sys.stdout.isatty() else 240  # a pipe has no width: do not wrap
    console = Console(file=sys.stdout, width=wide, highlight=False)
    for title, columns, rows in tables_of(document["columns"], document["rows"], parted):
        table = Table(title=title or document["question"])
        for column in columns:
            unit = f"\n{column['unit']}" if column["unit"] else ""
            words = _words(column, rows)
            table.add_column(f"{column['label']}{unit}", justify="left" if words else "right")
        for row in rows:
            table.add_row(*(escape(shown(row[column["name"]])) for column in columns))
        console.print(table)
    for sentence in document["finding"]:
        console.print(f"- {escape(sentence)}")
    console.print(escape(footer(document)))


def markdown(columns: Columns, rows: Rows, parted: Parted = lambda _: "") -> str:
    """Return the same tables as a page has them."""
    tables = tables_of(columns, rows, parted)
    return "\n\n".join(_markdown(wanted, mine) for _, wanted, mine in tables)


def _markdown(columns: Columns, rows: Rows) -> str:
    heads = [
        f"{column['label']}, {column['unit']}" if column["unit"] else column["label"]
        for column in columns
    ]
    marks = ["---" if _words(column, rows) else "---:" for column in columns]
    lines = [[shown(row[column["name"]]) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *lines))


def footer(document: Document) -> str:
    """Return what the figures were made with: machine, versions, seed, scale."""
    machine, packages = document["machine"], document["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    load = "/".join(f"{value:.1f}" for value in machine["load_average"])
    absent = f" Absent: {', '.join(document['absent'])}." if document["absent"] else ""
    return (
        f"{document['command']} ({document['made']}, {document['seconds']:.0f} s): "
        f"seed {document['seed']}, scale {document['scale']:g}, {document['rounds']} rounds; "
        f"{machine['processor']}, {machine['cores']} cores, load {load}; {machine['system']}; "
        f"{document['python']}; {versions}.{absent}"
    )
