"""ProcessGroup: processes that do not outlive the one that started them, however that ends.

A guard is the first process of a process group of its own. It reads from a pipe whose other end
only the starting process has, and kills the group when that end is closed, which the system does
for whoever is killed. The group has its number for as long as the guard is there, so no process
of somebody else can be meant. Where the guard alone is killed, another takes its place in the same
group while processes are left in it. Nor do the processes get the Ctrl-C of a terminal, so that
they can be stopped in order.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bkstore import forks

_GUARD = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"
_LINES = 3
_TAIL = 4096


class ProcessGroup:
    """Starts processes; `close` kills those that still run, as the end of this process does.

    Fork: a child leaves them alone.
    """

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._group = 0
        self._lock = threading.Lock()
        forks.register(self)

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process of the group; what it prints is added to the file `log`."""
        with self._lock, open(log, "ab") as file:
            return subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=self._number(),
            )

    def _number(self) -> int:
        """Return the number of the group; of a new one where no process of it is left."""
        if self._guard is None or (self._guard.poll() is not None and not self._replace()):
            self._begin(0)
        return self._group

    def _begin(self, group: int) -> None:
        """Start a guard, in a group that is there, or in one of its own (0)."""
        guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=group,
        )
        self._end_pipe()
        self._guard, self._group = guard, group or guard.pid
        threading.Thread(
            target=self._watch, args=(guard,), name="bkstore-guard", daemon=True
        ).start()

    def _replace(self) -> bool:
        """Put a new guard into the group; False if none of its processes is left."""
        try:
            self._begin(self._group)
        except OSError:  # there is no such group any more
            return False
        return True

    def _watch(self, guard: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a guard; if somebody killed it alone, another takes its place."""
        guard.wait()
        with self._lock:
            if self._guard is guard and not self._replace():
                self._end_pipe()
                self._guard = None

    def _end_pipe(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()

    def close(self) -> None:
        """Kill what still runs. Idempotent."""
        with self._lock:
            guard = self._guard
            self._end_pipe()
            self._guard = None
        if guard is not None:
            guard.wait()

    def _forked(self) -> None:
        """Close the child's end of the pipe, which would keep the group alive."""
        self._lock = threading.Lock()
        self._end_pipe()
        self._guard = None


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
