"""The progress bar on a terminal: seen at once, and readable on a light ground and a dark one."""

from __future__ import annotations

import io
import re
import sys

import pytest

from bkstore.cli.terminal.progress import work_progress

FAINT = {"33", "36", "37", "92", "93", "96", "97"}
"""Yellow, cyan, white and the bright ones: on white they are hardly there."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def _colours(written: str) -> list[list[str]]:
    return [codes.split(";") for codes in re.findall(r"\x1b\[([\d;]+)m", written)]


def test_no_faint_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and figures of the bar are in the terminal's own colour."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-16color")
    with work_progress("row") as show:
        assert show is not None
        show("a part", 1, 2, 1234)
    colours = _colours(stream.getvalue())

    assert "a part" in stream.getvalue()
    assert "1,234 rows" in stream.getvalue()
    assert len(colours) > 0
    assert [] == [codes for codes in colours if FAINT & {*codes}]


def test_one_is_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count has its noun in the singular or the plural."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with work_progress("copy", "copies") as show:
        assert show is not None
        show("a part", 1, 2, 1)
    assert "1 copy " in stream.getvalue()
    assert "copies" not in stream.getvalue()


def test_not_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Where standard error is no terminal there is no bar."""
    with work_progress("row") as show:
        assert show is None

    assert ("", "") == capsys.readouterr()
