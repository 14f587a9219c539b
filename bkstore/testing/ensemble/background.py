"""`bkstore ensemble up --detach`: the command once more, in a session of its own.

The new process prints what it says to pipes of this one until it is up; then it lets go of them,
and says the rest in a log. So what goes wrong before is told where the command was given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Started(NamedTuple):
    """What the process printed; `exit_code` is None if it is up."""

    output: str
    errors: str
    exit_code: int | None


def start(words: Sequence[str]) -> Started:
    """Run `bkstore` with these words in the background; return when it is up, or has ended."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "bkstore", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                output = process.stdout.read().decode("utf-8", "backslashreplace")
            code = None if output else process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        said.seek(0)
        errors = said.read().decode("utf-8", "backslashreplace")
    if code is None:
        process.returncode = 0  # it stays, and is not this process's to wait for
    return Started(output, errors, code)


def let_go(log: Path) -> None:
    """Send what this process says from now on to a log."""
    sys.stdout.flush()
    sys.stderr.flush()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.dup2(fd, 2)
        os.dup2(fd, 1)
    finally:
        os.close(fd)
