"""The standard streams: messages to standard error, texts to standard output, closed descriptors.

Messages go to standard error in whole lines with control characters escaped, and never fail: if it
is closed, broken or full, the exit code still says how the command ended. Results go to standard
output, and a failed write raises `WriteFailed`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

from bkstore.errors import WriteFailed
from bkstore.tables.safe_text import escape_unprintable


def print_stderr(text: str) -> None:
    """Print one line to standard error; unprintable characters are escaped."""
    try:
        print(escape_unprintable(text), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):  # broken, full, or closed
        redirect_to_null(sys.stderr)


def print_text(text: str) -> None:
    """Write a text to standard output and flush it. Raises `BrokenPipeError` if it is a pipe
    without a reader, on which a command ends silently, and `WriteFailed` for any other failure."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_null(sys.stdout)  # the flush at exit would fail again
        raise WriteFailed("standard output", error) from error


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that flushing it at exit cannot fail again."""
    with suppress(OSError, ValueError):  # it has no descriptor, or is closed
        descriptor = stream.fileno()
        null_descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_descriptor, descriptor)
        os.close(null_descriptor)


def ensure_standard_streams() -> None:
    """Make sure that all three standard streams exist and accept any text.

    The next file opened would get the descriptor of a closed stream, and with it all later output.
    A closed standard output is replaced by one that refuses writes, so that no output is lost
    silently. Characters that an encoding lacks are escaped.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor, which open() takes, is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
