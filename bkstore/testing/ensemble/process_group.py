"""ProcessGroup: processes that do not outlive the one that started them, however that ends.

A guard is the first process of a process group of its own. It reads from a pipe whose other end
only the starting process has, and kills the group when that end is closed, which the system does
for whoever is killed. The group has its number for as long as the guard is there, so no process
of somebody else can be meant. Nor do the processes get the Ctrl-C of a terminal, so that they can
be stopped in order.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bkstore import forks

__all__ = ["ProcessGroup", "last_lines"]

_GUARD = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"
_LINES = 3
_TAIL = 4096


class ProcessGroup:
    """Starts processes; `close` kills those that still run, as the end of this process does.

    Fork: a child leaves them alone.
    """

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        forks.register(self)

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process of the group; what it prints is added to the file `log`."""
        with open(log, "ab") as file:
            return subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=self._number(),
            )

    def _number(self) -> int:
        """Return the number of the group; of a new one if somebody killed the guard."""
        if self._guard is None or self._guard.poll() is not None:
            self.close()
            self._guard = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        return self._guard.pid

    def close(self) -> None:
        """Kill what still runs. Idempotent."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            guard.wait()

    def _forked(self) -> None:
        """Close the child's end of the pipe, which would keep the group alive."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()


def last_lines(log: Path, start: int = 0) -> str:
    """Return what a log says last, from the offset `start` on, as one line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     log = Path(top, "log")
    ...     _ = log.write_text("old" + "\\na\\n\\nb\\nc\\nd\\n")
    ...     last_lines(log, 3)
    'b | c | d'
    """
    with open(log, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(start, size - _TAIL))
        text = file.read().decode("utf-8", "backslashreplace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LINES:]) or "nothing"
