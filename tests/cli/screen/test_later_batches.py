"""Batches of a table whose cells are wider than those before."""

from __future__ import annotations

import io

import pytest

from bkstore.cli.screen.column_choice import screen_columns
from bkstore.cli.screen.text_width import width
from bkstore.tables import Schema, Table
from bkstore.tables.columns import make_schema
from tests.cli.screen.drawn_tables import SCHEMAS, filled, lines_of, terminal, without_styles


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("columns", [100, 80])
@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_later_pieces_fit(
    schema: Schema, is_terminal: bool, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a later batch with wider cells fit too: below a new header if there is no room."""
    out = terminal(columns, monkeypatch) if is_terminal else io.StringIO()
    small = {
        name: [1] * 2 if kind == "int64" else values
        for (name, kind, _), values in zip(schema.columns, filled(schema).columns.values())
    }
    lines = without_styles(
        lines_of(out, Table(schema, small), filled(schema), Table(schema, small))
    )
    texts = {
        *screen_columns(schema).may_cut,
        screen_columns(schema).wrap,
        "detail",
        "file",
        "path",
        "log",
        "directory",
        "log_file",
    }
    room = columns if is_terminal else 100

    if is_terminal or not texts & {*schema.names}:  # elsewhere no text is cut
        assert room >= max(map(width, lines))


def test_a_new_header_for_wider_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose cells no longer fit gets a header of its own, with the columns that fit."""
    schema = make_schema("pairs", "entry_id ledger_id offset position", drop_first="position")
    narrow = Table(schema, {name: [1] for name in schema.names})
    wide = Table(schema, {name: [10**18] for name in schema.names})
    lines = without_styles(lines_of(terminal(70, monkeypatch), narrow, wide, narrow))

    assert [
        ["entry_id", "ledger_id", "offset", "position"],
        ["1", "1", "1", "1"],
        [],
        ["entry_id", "ledger_id", "offset"],
        [str(10**18)] * 3,
        ["1", "1", "1"],
    ] == [line.split() for line in lines if "─" not in line]
    assert 70 >= max(map(width, lines))
