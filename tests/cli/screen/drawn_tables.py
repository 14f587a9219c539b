"""Tables of large values, and what a terminal shows of them."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from bkstore import LedgerId, tables
from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.screen.tables import Screen
from bkstore.tables import Schema, Table

WIDE = LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab")
ADDRESS = "bookie-17.rack-3.example.org:3181"
SCHEMAS = [value for name in tables.__all__ if isinstance(value := getattr(tables, name), Schema)]
SIZES = {"int64": 10**9, "int32": 3, "float64": 1 / 3, "bool": True}
STYLE = re.compile(r"\x1b\[\d*m")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def lines_of(
    stream: io.StringIO, *pieces: Table, shown: RequestedColumns | None = None
) -> list[str]:
    """Return the lines that a screen writes for the batches of a table."""
    screen = Screen(stream, pieces[0].schema, shown or RequestedColumns())
    for piece in pieces:
        screen.write(piece)
    screen.finish()
    return stream.getvalue().splitlines()


def without_styles(lines: list[str]) -> list[str]:
    """Return the lines as they are seen."""
    return [STYLE.sub("", line) for line in lines]


def terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    return Terminal()


def filled(schema: Schema, rows: int = 2) -> Table:
    """Return a table of large values, in which nothing is null and every row is another."""
    columns: dict[str, Any] = {}
    for name, kind, _ in schema.columns:
        value: Any = SIZES.get(kind, ADDRESS)
        if kind == "binary":
            value = b"payload, " * 90
        elif kind == "rows":
            value = [[n * n * 1000, n * n * 1000 + 7] for n in range(200)]
            if "groups" in name:
                value = [[n * n * 1000, n * n * 1000, 8, 0] for n in range(200)]
        columns[name] = [value + at if kind == "int64" else value for at in range(rows)]
    for name in {"scope_id", "ledger_id"} & {*columns}:
        columns[name] = [WIDE.signed[name == "ledger_id"] - at for at in range(rows)]
    for name in {"detail", "result", "missing", "bookies", "file", "answer"} & {*columns}:
        if isinstance(columns[name][0], str):
            columns[name] = [f"{at} is said at some length; " * 9 for at in range(rows)]
    return Table(schema, columns)
