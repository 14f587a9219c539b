"""What a command writes to the standard streams beside tables.

Messages go to standard error in whole lines that are safe to look at, and are never a new error:
where it is closed, broken or full, the exit code still says how the command ended. Texts that are
the command's answer go to standard output, and raise `WriteFailed` where they cannot be written.

`terminable` lets signals end a command in order. A handler runs wherever the main thread is. What
it raises inside a weakref callback or a `__del__` is dropped by Python, which only reports it:
then the signal is sent once more, a moment later.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any, TextIO, cast

from bkstore.errors import WriteFailed
from bkstore.tables.safe_text import shown

_AGAIN = 0.02
"""Seconds after which a signal whose exception was dropped is sent again."""


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

    A second one ends the process at once. Handlers that somebody else has set stay. An interrupt
    or a signal whose exception was dropped ends the block too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = _Signals()
    signals.install()
    try:
        yield
    finally:
        signals.restore()


class _Signals:
    """Handlers of the main thread, and the hook that hears of exceptions that were dropped."""

    def __init__(self) -> None:
        self._numbers = [
            number
            for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is signal.SIG_DFL
        ]
        self._raised: SystemExit | None = None
        self._number = 0
        self._in_hook = False
        self._gate = threading.Lock()
        self._over = False
        self._hook_before: Any = sys.unraisablehook

    def install(self) -> None:
        for number in self._numbers:
            signal.signal(number, self._end)
        sys.unraisablehook = self._hook

    def restore(self) -> None:
        with self._gate:
            self._over = True
        sys.unraisablehook = self._hook_before
        for number in self._numbers:
            signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self._in_hook:  # an exception would be dropped there too
            self._send_again(number)
            return
        signal.signal(number, signal.SIG_DFL)
        self._number, self._raised = number, SystemExit(128 + number)
        raise self._raised

    def _hook(self, dropped: sys.UnraisableHookArgs) -> None:
        self._in_hook = True
        try:
            if dropped.exc_value is not None and dropped.exc_value is self._raised:
                signal.signal(self._number, self._end)
                self._send_again(self._number)
            elif isinstance(dropped.exc_value, KeyboardInterrupt):
                self._send_again(signal.SIGINT)
            else:
                self._hook_before(dropped)
        finally:
            self._in_hook = False

    def _send_again(self, number: int) -> None:
        """Send a signal when the main thread has left what drops exceptions.

        By a bare thread: what was interrupted may have the locks of the module `threading`.
        """
        _thread.start_new_thread(self._send_later, (number,))

    def _send_later(self, number: int) -> None:
        time.sleep(_AGAIN)
        with self._gate:
            if not self._over:
                signal.pthread_kill(cast(int, threading.main_thread().ident), number)
