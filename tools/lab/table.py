"""The table of a document, and numbers as tables and findings write them."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools.lab.document import Document

__all__ = ["footer", "print_document", "shown"]


def shown(value: Any) -> str:
    """Return a value as a table shows it: three digits or all before the point, "" for None.

    >>> shown(0.012345), shown(1234567.8), shown(None), shown(3)
    ('0.0123', '1,234,568', '', '3')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_document(document: Document) -> None:
    """Print the rows as a table, then what was found, then what it was made with."""
    wide = None if sys.stdout.isatty() else 240  # a pipe has no width: do not wrap
    console = Console(file=sys.stdout, width=wide, highlight=False)
    table = Table(title=document["question"])
    columns = [
        column
        for column in document["columns"]
        if any(row[column["name"]] is not None for row in document["rows"])
    ]
    for column in columns:
        unit = f"\n{column['unit']}" if column["unit"] else ""
        words = any(isinstance(row[column["name"]], str) for row in document["rows"])
        table.add_column(f"{column['label']}{unit}", justify="left" if words else "right")
    for row in document["rows"]:
        table.add_row(*(escape(shown(row[column["name"]])) for column in columns))
    console.print(table)
    for sentence in document["finding"]:
        console.print(f"- {escape(sentence)}")
    console.print(escape(footer(document)))


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
