"""What a table for people is written to: how wide it is, what it takes, and lines to it."""

from __future__ import annotations

import os
import shutil
from typing import IO

WIDTH = 100
"""Characters of a line where the stream is no terminal."""

_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"


class ScreenStream:
    """A text stream; `terminal` says whether it is one.

    A terminal has the width that COLUMNS or the system says. Headers are bold and rules dim
    there, but not with NO_COLOR (https://no-color.org) or where TERM is dumb. `rule`, `mark` (for
    what was cut) and `gap` (the middle of an id) are characters that the encoding has.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.width = shutil.get_terminal_size((WIDTH, 24)).columns if self.terminal else WIDTH
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._styled = self.terminal and not plain
        self.rule, self.mark, self.gap = "─", "…", "…"
        try:
            "─…".encode(getattr(stream, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            self.rule, self.mark, self.gap = "-", "...", ".."

    def line(self, text: str, style: str) -> None:
        """Write one line, "bold" or "dim" where the stream takes that."""
        self.stream.write(f"{_STYLES[style]}{text}{_PLAIN}\n" if self._styled else f"{text}\n")
