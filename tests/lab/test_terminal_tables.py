"""Documents in a terminal: tables by panel that fit any width, and all columns on request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.screen.text_width import width
from bkstore.lab import LabRun, main
from bkstore.lab.documents.document import build_document
from bkstore.lab.experiment import Panel
from bkstore.lab.number_format import as_text, compare
from bkstore.lab.presentation.terminal_tables import panel_grid, print_document
from tests.lab.toys import TOY, measure_toys

Document = dict[str, Any]


@pytest.fixture
def document(tmp_path: Path) -> Document:
    """Return the document of a run of the toy."""
    run = LabRun(tmp_path, rounds=2)
    return build_document(TOY, run, measure_toys(run), ["--rounds", "2"], 1.5)


def _lines_on_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    """Return the lines that the saved toy prints on a terminal of so many columns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    assert 0 == main(TOY, ["--from", "toy.json", *words])
    return capsys.readouterr().out.splitlines()


def test_a_table_for_each_panel(document: Document, capsys: pytest.CaptureFixture[str]) -> None:
    """Values of x are rows and series columns; a figure that is absent is empty; what the figures
    are is in the title; findings and the run come after the tables."""
    print_document(TOY, document)
    lines = capsys.readouterr().out.splitlines()

    assert [
        "Room, bytes",
        "children     one   two & <three>",
        "────────────────────────────────",
        "      10      10              20",
        "     100     100             200",
        "   1,000   1,000           2,000",
        "",
        "Playing, ms",
        "children    one   words",
        "───────────────────────",
        "      10   1.43       1",
        "     100   14.3",
        "   1,000    143",
    ] == lines[:13]
    assert "- 7 rows, the largest 2000." in lines
    assert "Absent: no_such_library." in " ".join(lines)


def test_ticks_are_in_brackets(document: Document) -> None:
    """A panel's second figure stands behind the first one, and the title says which it is."""
    panel = Panel("Latency (tick: p99)", "size", "time", "side", tick_column="bytes")
    grid = panel_grid(TOY, panel, document["rows"])

    assert "Latency (p99 in brackets), ms" == grid.title
    assert ["10", "1.43 (10)", "2.86 (20)", "1"] == list(grid.rows[0])


def test_a_unit_within_a_word_is_not_the_unit() -> None:
    """ "teams" has the letters of the unit, not the unit."""
    rows = [{"side": "a", "time": 1.0}]
    titles = [
        panel_grid(TOY, Panel(title, "side", "time"), rows).title
        for title in ("Latency of teams", "Latency in ms")
    ]

    assert ["Latency of teams, ms", "Latency in ms"] == titles


@pytest.mark.parametrize("columns", [30, 40, 80, 120])
def test_lines_fit_the_terminal(
    columns: int,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No line is wider than the terminal, by panel or with all columns, and no figure is lost."""
    monkeypatch.chdir(tmp_path)
    assert 0 == main(TOY, ["--rounds", "1", "--json", "toy.json"])
    capsys.readouterr()
    for words in ([], ["--wide"]):
        lines = _lines_on_terminal(columns, monkeypatch, capsys, *words)
        text = " ".join(lines)

        assert columns >= max(map(width, lines))
        assert all(as_text(row["bytes"]) in text for row in document["rows"])


def test_all_columns_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where they do not fit, tables follow each other, each with the columns that name the row;
    elsewhere than on a terminal a row is one line."""
    monkeypatch.chdir(tmp_path)
    assert 0 == main(TOY, ["--rounds", "1", "--json", "toy.json", "--wide"])
    lines = capsys.readouterr().out.splitlines()

    assert ["toy", "children", "name", "room, bytes", "playing, ms"] == [
        word.strip() for word in lines[1].split("   ") if word
    ]
    assert 3 == sum(line.startswith("two & <three>") for line in lines)

    narrow = _lines_on_terminal(34, monkeypatch, capsys, "--wide")

    assert 9 == sum(line.startswith("two & <three>") for line in narrow)


def test_too_many_series_become_rows(document: Document) -> None:
    """A table that would be split has its rows as columns, if that is narrower."""
    grid = panel_grid(TOY, TOY.panels[0], document["rows"])
    transposed = grid.transpose()

    assert ["children", "10", "100", "1,000"] == list(transposed.headers)
    assert [["one", "10", "100", "1,000"], ["two & <three>", "20", "200", "2,000"]] == [
        list(row) for row in transposed.rows
    ]


def test_ratios_in_words() -> None:
    """Nearly the same is the same; less is a share; more is so many times."""
    assert ["about as fast", "about as fast"] == [compare(each, "fast") for each in (0.95, 1.05)]
    assert ["94 % as fast", "1.06 times as fast", "120 times as fast"] == [
        compare(each, "fast") for each in (0.94, 1.06, 120.4)
    ]


def test_no_terminal_has_a_hundred_columns(
    document: Document, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The width of the environment is for terminals."""
    monkeypatch.setitem(os.environ, "COLUMNS", "20")
    print_document(TOY, document)

    assert 60 < max(map(width, capsys.readouterr().out.splitlines())) <= 100


def test_figures_have_three_digits() -> None:
    """Absent ones are empty, words as they are."""
    assert ["", "1,234", "0.0123", "1,234", "word"] == [
        as_text(value) for value in (None, 1234, 0.012345, 1234.4, "word")
    ]
