"""The file that lets an interrupted audit go on: a line of JSON for each batch it has judged.

The first line says what run it is; each other line how far the run got, and what it found on the
way. A last line that is cut off was never said, and is left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bkstore.cluster.audit.outcome import Outcome
from bkstore.errors import CorruptionError, InvalidArgument, WriteFailed
from bkstore.formats.json_text import parse_json
from bkstore.index.access import readable
from bkstore.index.files import StrPath
from bkstore.index.opening import open_regular, opened

__all__ = ["RunFile"]

FORMAT = "bkstore-audit-1"
_LONGEST_LINE = 32 << 20


class RunFile:
    """The steps of one run, kept as they are done.

    `run` describes the run (its parameters, not its time); going on with another is refused.
    Raises `InvalidArgument` then, `CorruptionError` for a file that is none of these.
    """

    def __init__(self, path: StrPath, run: dict[str, Any], started_at: float) -> None:
        """Open or make the file."""
        self.path = Path(path)
        self.started_at = started_at
        self.steps: list[tuple[str, Outcome]] = []
        lines = self._lines()
        self._whole = sum(map(len, lines))
        if not lines:
            self._append({"format": FORMAT, "started_at": started_at, "run": run}, new=True)
            return
        head = self._parsed(lines[0], 0)
        if head.get("format") != FORMAT:
            raise CorruptionError(self.path, 0, "not the file of an audit")
        if head["run"] != run:
            raise InvalidArgument(
                f"{self.path}: is of an audit with other parameters: {json.dumps(head['run'])}"
            )
        self.started_at = head["started_at"]
        offset = len(lines[0])
        for line in lines[1:]:
            step = self._parsed(line, offset)
            self.steps.append((step["step"], Outcome.from_json(step["outcome"])))
            offset += len(line)

    def _lines(self) -> list[bytes]:
        """Return the whole lines of the file."""
        lines: list[bytes] = []
        with readable(self.path):
            try:
                with opened(self.path) as file:
                    while (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):
                        lines.append(line)
            except FileNotFoundError:
                return []
        if len(line) == _LONGEST_LINE:
            raise CorruptionError(self.path, sum(map(len, lines)), "a line without an end")
        return lines

    def _parsed(self, line: bytes, offset: int) -> dict[str, Any]:
        try:
            found = parse_json(line)
        except CorruptionError as error:
            raise CorruptionError(self.path, offset, error.reason) from None
        if not isinstance(found, dict):
            raise CorruptionError(self.path, offset, "not the file of an audit")
        return found

    def keep(self, step: str, outcome: Outcome) -> None:
        """Keep a step, durably."""
        self._append({"step": step, "outcome": outcome.to_json()})

    def _append(self, line: dict[str, Any], new: bool = False) -> None:
        data = json.dumps(line).encode("ascii") + b"\n"
        try:
            made = os.O_CREAT | os.O_EXCL if new and not self.path.exists() else 0
            with os.fdopen(open_regular(self.path, os.O_RDWR | made), "r+b") as file:
                file.seek(self._whole)
                file.truncate()
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise WriteFailed(self.path, error) from error
        self._whole += len(data)

    def remove(self) -> None:
        """Remove the file: the run is over."""
        self.path.unlink(missing_ok=True)
