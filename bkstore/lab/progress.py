"""Progress of a measurement on stderr: the share that is done, and the time left.

A line is written when a step begins, and never by a thread in between, which would take CPU time
from what is measured. On a terminal each line replaces the one before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from shutil import get_terminal_size
from typing import TextIO

from bkstore.cli.screen.text_width import truncate
from bkstore.tables.safe_text import escape_unprintable

_ERASE_LINE = "\r\x1b[K"


class StepProgress:
    """Counts the steps of a measurement and reports each to stderr, or to `stream`.

    Shares and times are shown after `expect` has set the number of steps: the time left assumes
    that the remaining steps take as long as those that are done.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._started = clock()
        self.expected_steps = self.begun_steps = 0
        self._line_is_open = False

    def expect(self, steps: int) -> None:
        """Set the number of steps that follow, and start the clock."""
        self.expected_steps, self.begun_steps, self._started = steps, 0, self._clock()

    def begin(self, step: str) -> None:
        """Report that a step begins, which means that the one before is done: on a terminal in
        place of its line, otherwise as a line of its own."""
        stream = sys.stderr if self._stream is None else self._stream
        text = escape_unprintable(f"{self._describe_share()}{step} ...")
        self.begun_steps += 1
        if stream.isatty():
            stream.write(_ERASE_LINE + truncate(text, get_terminal_size().columns - 1))
            self._line_is_open = True
        else:
            stream.write(f"{text}\n")
        stream.flush()

    def _describe_share(self) -> str:
        """Return the share that is done and the time left, as the beginning of a line."""
        if not self.begun_steps or self.begun_steps >= self.expected_steps:
            return ""
        elapsed = self._clock() - self._started
        left = elapsed / self.begun_steps * (self.expected_steps - self.begun_steps)
        return f"{self.begun_steps / self.expected_steps:4.0%}, {_format_seconds(left)} left: "

    def end(self) -> None:
        """Erase the line on a terminal, so that other output begins at its beginning."""
        if self._line_is_open:
            stream = sys.stderr if self._stream is None else self._stream
            stream.write(_ERASE_LINE)
            stream.flush()
            self._line_is_open = False


def _format_seconds(seconds: float) -> str:
    """Return a duration to the second below a minute, else in minutes and seconds."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    return f"{minutes} min {whole_seconds} s" if minutes else f"{whole_seconds} s"
