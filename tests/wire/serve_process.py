"""`bkstore serve` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["served"]


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int], str]]:
    """Yield a process of `bkstore serve`, where it listens, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bkstore", "serve", *words, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        host, _, port = line.split()[-1].rpartition(":")

        assert port.isdigit(), line + process.stderr.read()
        yield process, (host, int(port)), line
    finally:
        process.kill()
        process.communicate()
