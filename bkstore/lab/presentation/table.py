"""The tables of a document: its rows split by title, as Markdown, and how they were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bkstore.lab.documents.document import Document
from bkstore.lab.experiment import Row, Rows
from bkstore.lab.number_format import as_text

TableTitle = Callable[[Row], str]

Columns = Sequence[dict[str, Any]]  # columns as in a JSON document: name, label, unit, kind


def split_tables(
    columns: Columns, rows: Rows, table_title: TableTitle
) -> Sequence[tuple[str, Columns, Rows]]:
    """Return title, columns and rows of each table; `table_title` gives the title of a row's table.
    Left out are columns without any value in the table, and those of kind "kept", which are only
    for documents."""
    tables = []
    for title in dict.fromkeys(map(table_title, rows)):
        table_rows = [row for row in rows if table_title(row) == title]
        shown_columns = [
            column
            for column in columns
            if column["kind"] != "kept"
            and any(row[column["name"]] not in (None, "") for row in table_rows)
        ]
        tables.append((title, shown_columns, table_rows))
    return tables


def has_words(column: dict[str, Any], rows: Rows) -> bool:
    """Return whether a column has text, which is aligned to the left."""
    return any(isinstance(row[column["name"]], str | bool) for row in rows)


def to_markdown(columns: Columns, rows: Rows, table_title: TableTitle = lambda _: "") -> str:
    """Return the tables in Markdown, as documentation pages include them."""
    tables = split_tables(columns, rows, table_title)
    return "\n\n".join(_markdown_table(columns, rows) for _, columns, rows in tables)


def _markdown_table(columns: Columns, rows: Rows) -> str:
    labels = ([column["label"], column["unit"]] for column in columns)
    head_cells = [", ".join(filter(None, label_and_unit)) for label_and_unit in labels]
    alignments = ["---" if has_words(column, rows) else "---:" for column in columns]
    body_rows = [[as_text(row[column["name"]]) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head_cells, alignments, *body_rows))


def describe_run(document: Document) -> str:
    """Return one line on how the result was made: command, seed, scale, machine, versions."""
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
