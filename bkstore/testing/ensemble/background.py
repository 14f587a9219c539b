"""`bkstore ensemble up --detach`: run the command again in a session of its own.

The new process prints to pipes of this one until it is up, and to a log from then on. So errors
during the start appear where the command was given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class StartResult(NamedTuple):
    """The output of the process; `exit_code` is None if it is up."""

    output: str
    errors: str
    exit_code: int | None


def start_detached(arguments: Sequence[str]) -> StartResult:
    """Run `bkstore` with these arguments in the background; return when it is up, or has ended."""
    with tempfile.TemporaryFile() as stderr_file:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "bkstore", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr_file,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                # It closes its standard output when it is up, after a first line, or when it ends.
                output = process.stdout.read().decode("utf-8", "backslashreplace")
            exit_code = None if output else process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        stderr_file.seek(0)
        errors = stderr_file.read().decode("utf-8", "backslashreplace")
    if exit_code is None:
        process.returncode = 0  # it keeps running: no ResourceWarning for a child not waited for
    return StartResult(output, errors, exit_code)


def redirect_output(log: Path) -> None:
    """Redirect standard output and standard error to a log from now on."""
    sys.stdout.flush()
    sys.stderr.flush()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.dup2(fd, 2)
        os.dup2(fd, 1)
    finally:
        os.close(fd)
