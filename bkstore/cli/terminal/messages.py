"""What a command writes to the standard streams beside tables.

Messages go to standard error in whole lines that are safe to look at, and are never a new error:
where it is closed, broken or full, the exit code still says how the command ended. Texts that are
the command's answer go to standard output, and raise `WriteFailed` where they cannot be written.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn, TextIO

from bkstore.errors import WriteFailed
from bkstore.tables.safe_text import shown

__all__ = ["print_text", "silence", "tell", "terminable", "usable_streams"]


def tell(text: str) -> None:
    """Print one line on standard error; what is not printable in it is escaped."""
    try:
        print(shown(text), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):  # broken, full, or closed
        silence(sys.stderr)


def print_text(text: str) -> None:
    """Write a text to standard output, at once; raises `WriteFailed` if that is not possible.

    A pipe without a reader is a `BrokenPipeError`, which ends a command without an error.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence(sys.stdout)
        raise WriteFailed("standard output", error) from error


def silence(stream: TextIO) -> None:
    """Send what a stream still holds nowhere, so that it cannot fail again as Python ends."""
    with suppress(OSError, ValueError):  # it has no number, or is closed
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)


def usable_streams() -> None:
    """Let standard streams be there, and take any text.

    The number of a closed one would go to the next file that is opened, with all that is printed
    later. Standard output becomes one that refuses writes, so that it is not lost in silence.
    Characters that an encoding lacks are escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an interrupt does: everything is cleaned up.

    A second one ends the process at once. Handlers that somebody else has set stay.
    """

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
