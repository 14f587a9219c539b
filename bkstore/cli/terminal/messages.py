"""Text on the standard streams other than tables, and orderly termination by signals.

Messages go to standard error in whole lines with control characters escaped, and never fail: if it
is closed, broken or full, the exit code still says how the command ended. Results go to standard
output, and a failed write raises `WriteFailed`.

`signals_as_exceptions` lets signals end a command with its cleanup. A handler can run anywhere in
the main thread; if it raises inside a weakref callback or a `__del__`, Python only reports and
drops the exception, and the signal is sent once more, a moment later.
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
from bkstore.tables.safe_text import escape_unprintable

_RESEND_SECONDS = 0.02
"""Seconds to wait before a signal whose exception was dropped is sent again."""


def print_stderr(text: str) -> None:
    """Print one line to standard error; unprintable characters are escaped."""
    try:
        print(escape_unprintable(text), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):  # broken, full, or closed
        redirect_to_null(sys.stderr)


def print_text(text: str) -> None:
    """Write a text to standard output and flush it; raises `WriteFailed` if that fails, but for a
    pipe without a reader `BrokenPipeError`, on which a command ends silently."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_null(sys.stdout)
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


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by an exception, as an interrupt does, with cleanup.

    A second signal ends the process at once. Handlers set by the caller are kept. If Python drops
    the exception of a signal or an interrupt, the signal is sent again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = _SignalHandlers()
    signals.install()
    try:
        yield
    finally:
        signals.restore()


class _SignalHandlers:
    """Signal handlers of the main thread, and an unraisable hook that sees dropped exceptions."""

    def __init__(self) -> None:
        self._signal_numbers = [
            number
            for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is signal.SIG_DFL
        ]
        self._raised_exit: SystemExit | None = None
        self._received_signal = 0
        self._in_hook = False
        self._restore_lock = threading.Lock()
        self._restored = False
        self._previous_hook: Any = sys.unraisablehook

    def install(self) -> None:
        for number in self._signal_numbers:
            signal.signal(number, self._raise_exit)
        sys.unraisablehook = self._on_unraisable

    def restore(self) -> None:
        with self._restore_lock:
            self._restored = True
        sys.unraisablehook = self._previous_hook
        for number in self._signal_numbers:
            signal.signal(number, signal.SIG_DFL)

    def _raise_exit(self, signal_number: int, _frame: FrameType | None) -> None:
        if self._in_hook:  # an exception raised in the hook would be dropped as well
            self._resend(signal_number)
            return
        signal.signal(signal_number, signal.SIG_DFL)
        self._received_signal, self._raised_exit = signal_number, SystemExit(128 + signal_number)
        raise self._raised_exit

    def _on_unraisable(self, dropped: sys.UnraisableHookArgs) -> None:
        self._in_hook = True
        try:
            if dropped.exc_value is not None and dropped.exc_value is self._raised_exit:
                signal.signal(self._received_signal, self._raise_exit)
                self._resend(self._received_signal)
            elif isinstance(dropped.exc_value, KeyboardInterrupt):
                self._resend(signal.SIGINT)
            else:
                self._previous_hook(dropped)
        finally:
            self._in_hook = False

    def _resend(self, signal_number: int) -> None:
        """Send a signal again once the main thread has left the code that drops exceptions, by a
        bare thread: the interrupted code may hold locks of the `threading` module."""
        _thread.start_new_thread(self._resend_after_pause, (signal_number,))

    def _resend_after_pause(self, signal_number: int) -> None:
        time.sleep(_RESEND_SECONDS)
        with self._restore_lock:
            if not self._restored:
                signal.pthread_kill(cast(int, threading.main_thread().ident), signal_number)
