"""Long texts of a terminal's tables: wrapped beside the other columns, or below each row."""

from __future__ import annotations

import io

import pytest

from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.screen.tables import Screen
from bkstore.tables import CHECK_FINDINGS, LEAKED_LEDGERS, LEAKS, VIOLATIONS, Schema, Table
from bkstore.tables.columns import make_schema
from tests.cli.screen.drawn_tables import lines_of, terminal, without_styles

NOTES = make_schema(
    "notes", "bookie file offset detail", may_cut="file", wrap="detail", drop_first="offset"
)
DETAIL = "the records of this log end with a torn one"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def _notes(file: str, detail: str = DETAIL) -> Table:
    return Table(NOTES, {"bookie": ["b1"], "file": [file], "offset": [1028], "detail": [detail]})


def test_beside_the_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a text are below each other; a path gets at most half of the room, and keeps
    its end."""
    path = "bookies/rack-1/bookie-1/ledgers/current/0.log"

    lines = without_styles(lines_of(terminal(72, monkeypatch), _notes(path)))
    assert [
        "the records of this log end",
        "with a torn one",
    ] == [line[lines[0].index("detail") :] for line in lines[2:]]
    assert lines[2][9 : lines[0].index("offset") - 3].startswith("…")
    assert lines[2][9 : lines[0].index("offset") - 3].endswith("/current/0.log")


def test_below_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the other columns leave less than 24 characters, a text has lines of its own."""
    rows = [_notes("1.log"), _notes("2.log", "short")]

    assert [
        "bookie   file    offset",
        "───────────────────────",
        "b1       1.log     1028",
        "    the records of this log end with a",
        "    torn one",
        "b1       2.log     1028",
        "    short",
    ] == without_styles(lines_of(terminal(42, monkeypatch), *rows))


def test_below_instead_of_a_third_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text takes at most two lines beside the others, except in half of the screen or more."""
    columns, start = 51, len("b1       1.log     1028   ")
    two, three = "x" * (2 * (columns - start)), "x" * (2 * (columns - start) + 1)

    def lines(columns: int, text: str) -> list[str]:
        return without_styles(lines_of(terminal(columns, monkeypatch), _notes("1.log", text)))[2:]

    assert [start, start] == [line.index("x") for line in lines(columns, two)]
    assert ["b1       1.log     1028", f"    {'x' * 47}", "    xxxx"] == lines(columns, three)
    longer = "x" * (2 * start + 1)
    assert [start] * 3 == [line.index("x") for line in lines(2 * start, longer)]


def test_entries_are_not_cut_for_columns_that_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--wide` shows a column that was left out, and a list of entries says nothing when cut; but
    if it cannot be complete in any case, nothing is left out for it."""
    schema = make_schema(
        "lists",
        "bookie entries missing? missing_groups:rows",
        show="bookie entries missing",
        may_cut="missing",
        drop_first="entries",
    )

    def lines(columns: int) -> list[str]:
        groups = [[0, 99, 1, 3]]
        row = {"bookie": ["b1"], "entries": [34], "missing": [None], "missing_groups": [groups]}
        return without_styles(lines_of(terminal(columns, monkeypatch), Table(schema, row)))

    text = "0, 3, 6, ..., 99 (34 entries)"
    assert ["bookie", "entries", "missing"] == lines(48)[0].split()
    assert lines(48)[2].endswith(text)
    assert ["bookie", "missing"] == lines(47)[0].split()
    assert lines(47)[2].endswith(text)
    assert ["bookie", "entries", "missing"] == lines(37)[0].split()
    assert lines(37)[2].endswith("…")


def test_qualified_names_keep_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin with the digits of a scope, which most ledgers share."""
    columns = "qualified_name entries"
    schema = make_schema("names", columns, show=columns, may_cut="qualified_name")
    table = Table(schema, {"qualified_name": [f"{7:032x}"], "entries": [1]})
    lines = without_styles(lines_of(terminal(30, monkeypatch), table))

    assert f"…{7:0>19}         1" == lines[2]


def test_a_text_below_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown, so `--wide` need not be named for it."""
    screen = Screen(terminal(42, monkeypatch), NOTES)
    screen.write(_notes("1.log"))

    assert [] == screen.hidden


def test_short_texts_stay_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that fits is a column, however little room there is."""
    lines = without_styles(lines_of(terminal(42, monkeypatch), _notes("1.log", "short")))

    assert ["b1       1.log     1028   short"] == lines[2:]


def test_columns_that_vary_later_are_in_no_caption() -> None:
    """With several bookies the first rows already have the column of bookies."""
    schema = make_schema("sizes", "bookie bytes", caption="bookie")
    tables = [Table(schema, {"bookie": [name], "bytes": [1]}) for name in ("b1", "b2")]
    lines = lines_of(io.StringIO(), *tables, shown=RequestedColumns(varied=("bookie",)))

    assert ["bookie   bytes", "b1           1", "b2           1"] == [lines[0], *lines[2:]]


def test_pipes_have_whole_texts() -> None:
    """Elsewhere than on a terminal nothing is wrapped."""
    lines = lines_of(io.StringIO(), _notes("a" * 90))

    assert [f"b1       {'a' * 90}     1028   {DETAIL}"] == lines[2:]


@pytest.mark.parametrize("schema", [CHECK_FINDINGS, VIOLATIONS], ids=lambda schema: schema.name)
def test_findings_are_whole(schema: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a finding is complete on a terminal of 80 characters."""
    assert schema in (CHECK_FINDINGS, VIOLATIONS)
    columns = {name: [None] for name in schema.names}
    columns |= {"detail": [f"{DETAIL}; " * 3], "file": ["bookie-1/ledgers/current/0.log"]}
    columns |= {"bookie": ["bookie-1"], "offset": [123456], "missing": [None]}
    table = Table(schema, {name: columns[name] for name in schema.names})
    lines = without_styles(lines_of(terminal(80, monkeypatch), table))

    assert 3 == " ".join(line.replace("…", " ") for line in lines).count("torn")


@pytest.mark.parametrize("schema", [LEAKS, LEAKED_LEDGERS])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_long_names_of_topics(
    schema: Schema, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a leak is shown complete, however long its name is, and in lines that fit."""
    owners = ["persistent://shop/orders/paid", "persistent://shop/orders/" + "long-name-" * 14]
    values = {"class": "leaked", "scope_id": 0, "component": "managed-ledger", "length": 10**6}
    values |= {"bytes": 10**9, "removable_bytes": 10**8, "detail": "nothing refers to it"}
    rows = [
        tuple({**values, "ledger_id": 7, "owner": owner}.get(name) for name in schema.names)
        for owner in owners
    ]
    lines = without_styles(lines_of(terminal(columns, monkeypatch), Table.from_rows(schema, rows)))

    assert columns >= max(map(len, lines))
    rows_shown = "".join("".join(lines[2:]).split())
    assert all(owner in rows_shown for owner in owners)
