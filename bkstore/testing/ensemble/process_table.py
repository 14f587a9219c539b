"""The state of a process, as the system's process table has it: running, stopped, or ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

_ENDED = "ZX"  # it has ended: not waited for yet, or being removed
_STOPPED = "Tt"
_POLL_SECONDS = 0.002
_PROC = Path("/proc/self/stat")


class ProcessState(NamedTuple):
    """A process that has not ended: its parent's id, and whether a signal has stopped it."""

    parent: int
    is_stopped: bool


def read_process(pid: int) -> ProcessState | None:
    """Return the state of a process; None if it has ended, whether or not its parent knows.

    >>> state = read_process(os.getpid())
    >>> state.parent == os.getppid(), state.is_stopped
    (True, False)
    """
    fields = _read_stat(pid) if _PROC.exists() else _ask_ps(pid)
    if fields is None:
        return None
    state, parent = fields
    if state[0] in _ENDED:
        return None
    return ProcessState(int(parent), state[0] in _STOPPED)


def stop_process(pid: int) -> None:
    """Send SIGSTOP to a process; return when it is stopped, or has ended."""
    os.kill(pid, signal.SIGSTOP)
    while (process := read_process(pid)) is not None and not process.is_stopped:
        time.sleep(_POLL_SECONDS)


def continue_process(pid: int) -> None:
    """Send SIGCONT to a process; return when it is not stopped, or has ended."""
    os.kill(pid, signal.SIGCONT)
    while (process := read_process(pid)) is not None and process.is_stopped:
        time.sleep(_POLL_SECONDS)


def _read_stat(pid: int) -> list[str] | None:
    """Return the state's letter and the parent's id of a process from Linux's /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # After the name in parentheses, which may have any characters in it.
    return text.rpartition(")")[2].split()[:2]


def _ask_ps(pid: int) -> list[str] | None:
    """Return the same from ps."""
    words = ["ps", "-o", "stat=,ppid=", "-p", str(pid)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.split()[:2] or None
