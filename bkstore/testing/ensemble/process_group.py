"""ProcessGroup: processes that do not outlive the one that started them, however that ends.

A guard is the first process of a new process group. It reads from a pipe whose other end only the
starting process has, and kills the group when that end is closed, which the system does even if
the starting process is killed. While the guard lives the group keeps its id, so the kill cannot
hit other processes. If the guard alone is killed, a new one joins the group while it still has
processes. The processes do not get the Ctrl-C of a terminal, so they can be stopped in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from bkstore import forks

_GUARD_CODE = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"
_MAX_LINES = 3
_MAX_TAIL_BYTES = 4096


class ProcessGroup:
    """Starts processes; `close` or the end of this process kills them. Fork: a child's does not."""

    def __init__(self) -> None:
        """Make an empty group; a guard process ends its members when this process ends."""
        self._guard: subprocess.Popen[bytes] | None = None
        self._group_id = 0
        self._lock = threading.Lock()
        forks.register(self)

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process in the group; its output is appended to the file `log`."""
        with self._lock, open(log, "ab") as file:
            try:
                return self._start_member(command, file)
            except PermissionError:  # of `command`, or as the group ended after the guard was asked
                if self._has_processes():
                    raise
                self._close_guard_pipe()
                self._guard = None
            return self._start_member(command, file)

    def _start_member(self, command: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=self._ensure_group(),
        )

    def _has_processes(self) -> bool:
        """Return whether the group has processes that are not gone altogether."""
        try:
            os.killpg(self._group_id, 0)  # no signal: looks only whether there is one to get it
        except ProcessLookupError:
            return False
        return True

    def _ensure_group(self) -> int:
        if self._guard is None or (self._guard.poll() is not None and not self._replace_guard()):
            self._start_guard(group_id=0)
        return self._group_id

    def _start_guard(self, group_id: int) -> None:
        """Start the process that kills the group once this one ends, which closes its pipe. It is
        started in the group `group_id`; 0 stands for a new one."""
        guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", "-c", _GUARD_CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=group_id,
        )
        self._close_guard_pipe()  # of the previous guard, which has ended
        self._guard, self._group_id = guard, group_id or guard.pid
        watch, thread_name = self._replace_guard_when_it_ends, "bkstore-guard"
        threading.Thread(target=watch, args=(guard,), name=thread_name, daemon=True).start()

    def _replace_guard(self) -> bool:
        """Start a new guard in the group; return False if the group has no process left."""
        try:
            self._start_guard(self._group_id)
        except OSError:  # the group no longer exists
            return False
        return True

    def _replace_guard_when_it_ends(self, guard: subprocess.Popen[bytes]) -> None:
        """Wait until a guard ends, and replace it if it alone was killed."""
        guard.wait()
        with self._lock:  # `close`, and a start that found it dead, have set another guard or None
            if self._guard is guard and not self._replace_guard():
                self._close_guard_pipe()
                self._guard = None

    def _close_guard_pipe(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()

    def close(self) -> None:
        """Kill all processes of the group. Idempotent."""
        with self._lock:
            guard = self._guard
            self._close_guard_pipe()  # the guard then kills the group, itself included
            self._guard = None
        if guard is not None:
            guard.wait()
            # A guard that was killed before has left what was started since. Processes that have
            # ended, but nobody waited for, keep the id of the group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group_id, signal.SIGKILL)

    def _forked(self) -> None:
        """Close the child's copy of the pipe, which would keep the group alive."""
        self._lock = threading.Lock()
        self._close_guard_pipe()
        self._guard = None


def last_lines(log: Path, start: int = 0) -> str:
    """Return the last lines of a log from the offset `start` on, joined to one line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     log = Path(top, "log")
    ...     _ = log.write_text("old" + "\\na\\n\\nb\\nc\\nd\\n")
    ...     last_lines(log, 3)
    'b | c | d'
    """
    with open(log, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(start, size - _MAX_TAIL_BYTES))
        text = file.read().decode("utf-8", "backslashreplace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_MAX_LINES:]) or "nothing"
