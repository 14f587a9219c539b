"""Interrupts: the repair of objects after a call that an interrupt has ended.

An interrupt (`KeyboardInterrupt`, or an exception of a signal handler) can come between any two
steps of a program, even between the acquisition of a lock and the block that would release it.
So the locks here know their owner, and an object is repaired when a call ends with anything but an
error of this package: the locks that the thread still owns are released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from bkstore.errors import BkstoreError

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Repairable(Protocol):
    """An object with locks that an interrupted call may leave locked."""

    def _repair(self) -> None:
        """Release this thread's locks, and end what the call left unfinished. Idempotent."""


_S = TypeVar("_S", bound=Repairable)


def release_owned(lock: RLock) -> None:
    """Release a lock as often as this thread has acquired it; do nothing if it does not own it."""
    try:
        while True:
            lock.release()
    except RuntimeError:  # this thread does not own it
        return


def repair(broken: Repairable) -> None:
    """Repair an object after an interrupt. Begins again if another interrupt comes."""
    while True:
        try:
            return broken._repair()
        except Exception:  # a defect, not an interrupt
            raise
        except BaseException:  # noqa: BLE001,S112 - the caller raises the first one
            continue


def repair_on_interrupt(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Return the method, wrapped to repair its object when an interrupt ends it."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return method(self, *args, **keywords)
        except BkstoreError:  # raised on purpose, when the object is sound
            raise
        except BaseException:
            repair(self)
            raise

    return call
