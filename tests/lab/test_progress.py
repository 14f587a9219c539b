"""Progress of a measurement: shares, time left, one line on a terminal."""

from __future__ import annotations

import io

import pytest

from bkstore.lab.progress import StepProgress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def _steps(stream: io.StringIO, expected: int, seconds: list[float]) -> str:
    """Return what is written for steps that begin at these seconds, after `expect` at 100."""
    times = iter([0.0, 100.0, *seconds[1:]])
    progress = StepProgress(stream, lambda: next(times))
    if expected:
        progress.expect(expected)
    for number in range(len(seconds)):
        progress.begin(f"step {number}")
    progress.end()
    return stream.getvalue()


def test_share_and_time_left() -> None:
    """The time left is that of the remaining steps at the pace of those that are done."""
    # Four steps: after 10 s one is done, three are left; after 70 s two of four.
    text = _steps(io.StringIO(), 4, [100, 110, 170])

    assert [
        "step 0 ...",
        " 25%, 30 s left: step 1 ...",
        " 50%, 1 min 10 s left: step 2 ...",
    ] == text.splitlines()


def test_no_share_without_a_number_of_steps() -> None:
    """Without `expect`, or after more steps than expected, there is no share."""
    assert ["step 0 ...", "step 1 ..."] == _steps(io.StringIO(), 0, [1, 2]).splitlines()
    assert "step 1 ..." == _steps(io.StringIO(), 1, [100, 101]).splitlines()[-1]


def test_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's line replaces the one before, fits the terminal, and is erased at the end."""
    monkeypatch.setenv("COLUMNS", "20")
    text = _steps(Terminal(), 4, [100, 110])

    assert "\r\x1b[Kstep 0 ...\r\x1b[K 25%, 30 s left: s…\r\x1b[K" == text
    assert "\n" not in text


def test_steps_cannot_control_the_terminal() -> None:
    """Control characters of a step's name are escaped."""
    stream = io.StringIO()
    StepProgress(stream).begin("a\x1b[2Jb")

    assert "\x1b" not in stream.getvalue()
