"""`bkstore serve` as a process: what it says, and where it listens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Served", "served"]


class Served:
    """A process of the command, once it listens."""

    def __init__(self, process: subprocess.Popen[str], said: list[str]) -> None:
        self.process = process
        self.said = said
        """The lines of standard error up to the one that says where it listens."""
        host, _, port = said[-1].split()[-1].rpartition(":")
        self.address = (host, int(port))


@contextmanager
def served(*words: str | Path) -> Iterator[Served]:
    """Yield a process of the command; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bkstore", "serve", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said: list[str] = []
        while not said or "bkstore: serving " not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        yield Served(process, [line.rstrip("\n") for line in said])
    finally:
        process.kill()
        process.communicate()
