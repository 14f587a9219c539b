"""Signals that end a command, wherever the main thread is when they arrive."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable

import pytest

from bkstore.cli.terminal.signals import signals_as_exceptions


class _Thing:
    """Something that is dropped."""


def _in_weakref_callback(call: Callable[[], object]) -> None:
    thing = _Thing()
    kept = weakref.ref(thing, lambda _: call())
    del thing
    assert kept() is None


def _in_destructor(call: Callable[[], object]) -> None:
    class Thing:
        def __del__(self) -> None:
            call()

    thing = Thing()
    del thing


@pytest.mark.parametrize("where", [_in_weakref_callback, _in_destructor])
@pytest.mark.parametrize(
    ("number", "ends"),
    [(signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_signal_that_python_drops(
    where: Callable[[Callable[[], object]], None],
    number: signal.Signals,
    ends: type[BaseException],
) -> None:
    """A signal that arrives in a weakref callback or a destructor, where Python drops what its
    handler raises, ends the block all the same, with the exit code of the signal."""
    sent = []

    def send() -> None:
        sent.append(number)
        os.kill(os.getpid(), number)
        for _ in range(100):  # the handler runs between two of these
            pass

    def work() -> None:
        with signals_as_exceptions():
            where(send)
            threading.Event().wait(20)

    before = signal.getsignal(number)
    with pytest.raises(ends) as raised:
        work()

    assert [number] == sent
    assert ends is KeyboardInterrupt or [128 + number] == [*raised.value.args]
    assert before == signal.getsignal(number)


def test_other_dropped_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else is dropped goes to the hook that was there, which is there again afterwards."""
    told: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda dropped: told.append(dropped.exc_value))

    def fail() -> None:
        raise ValueError("other")

    with signals_as_exceptions():
        _in_weakref_callback(fail)
    _in_weakref_callback(fail)

    assert ["other", "other"] == list(map(str, told))
