"""Orderly termination by signals, which end a command with its cleanup.

A handler can run anywhere in the main thread; if it raises inside a weakref callback or a
`__del__`, Python only reports and drops the exception, and the signal is soon sent once more.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RESEND_SECONDS = 0.02
"""Seconds to wait before a signal whose exception was dropped is sent again."""


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
        self._handled_signals = [  # those without a handler of the caller
            number
            for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is signal.SIG_DFL
        ]
        self._raised_exit: SystemExit | None = None  # the exception for the first signal
        self._received_signal = 0  # the number of that signal
        self._in_hook = False  # the unraisable hook is running
        self._restore_lock = threading.Lock()
        self._restored = False  # the handlers are the default ones again: nothing may be sent
        self._previous_hook: Any = sys.unraisablehook

    def install(self) -> None:
        for number in self._handled_signals:
            signal.signal(number, self._raise_exit)
        sys.unraisablehook = self._on_unraisable

    def restore(self) -> None:
        """Give the signals back to the system; none is sent again after this."""
        with self._restore_lock:
            self._restored = True
        sys.unraisablehook = self._previous_hook
        for number in self._handled_signals:
            signal.signal(number, signal.SIG_DFL)

    def _raise_exit(self, signal_number: int, _frame: FrameType | None) -> None:
        """Handle the first signal: raise `SystemExit`; a second one then ends the process."""
        if self._in_hook:  # an exception raised in the hook would be dropped as well
            self._resend(signal_number)
            return
        signal.signal(signal_number, signal.SIG_DFL)
        self._received_signal, self._raised_exit = signal_number, SystemExit(128 + signal_number)
        raise self._raised_exit

    def _on_unraisable(self, dropped: sys.UnraisableHookArgs) -> None:
        """Send a signal again whose exception Python dropped, such as one raised in a `__del__`."""
        self._in_hook = True
        try:
            if dropped.exc_value is not None and dropped.exc_value is self._raised_exit:
                # The exit of a first signal was dropped: it has not ended the command yet.
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
        """Send a signal again, in case the first one was swallowed."""
        time.sleep(_RESEND_SECONDS)
        with self._restore_lock:
            if not self._restored:
                signal.pthread_kill(cast(int, threading.main_thread().ident), signal_number)


@contextmanager
def kill_on_second_signal() -> Iterator[Callable[[], None]]:
    """Yield a function to call when stopping begins: from then on a signal kills the process. The
    next start replays all acknowledged entries from the journals."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    numbers = _STOP_SIGNALS if in_main_thread else ()  # elsewhere no handler can be set
    previous_handlers = {number: signal.getsignal(number) for number in numbers}

    def reset_handlers() -> None:
        for number in previous_handlers:
            signal.signal(number, signal.SIG_DFL)

    try:
        yield reset_handlers
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
