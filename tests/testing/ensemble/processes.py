"""Whether processes are there, told without the library under test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable

__all__ = ["alive", "all_end"]


def alive(pid: int | None) -> bool:
    """Return whether a process runs; one that ended, and was not waited for, does not."""
    if pid is None:
        return False
    words = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return state != "" and not state.startswith("Z")


def all_end(pids: Iterable[int | None]) -> bool:
    """Return whether processes end within some seconds."""
    left = list(pids)
    until = time.monotonic() + 20
    while left and time.monotonic() < until:
        left = [pid for pid in left if alive(pid)]
        time.sleep(0.02)
    return not left
