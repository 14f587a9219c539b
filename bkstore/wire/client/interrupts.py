"""Interrupts: what a call leaves behind that is ended between any two of its steps.

An interrupt (`KeyboardInterrupt`, or what a signal's handler raises) comes between any two steps
of a program: behind the acquisition of a lock and before the block that would release it, too. So
the locks here know their owner, and the outermost call of an object repairs it when it ends by
anything but an error of the package: it releases what the thread still owns.
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
    """Something with locks, which an interrupted call may leave locked."""

    def _repair(self) -> None:
        """Release what this thread owns, and end what the call left undone. Idempotent."""


_S = TypeVar("_S", bound=Repairable)


def release_owned(lock: RLock) -> None:
    """Release a lock as often as this thread has acquired it; not at all if another owns it."""
    try:
        while True:
            lock.release()
    except RuntimeError:  # this thread does not own it
        return


def repair(broken: Repairable) -> None:
    """Repair after an interrupt. Where another one comes meanwhile, begin again."""
    while True:
        try:
            return broken._repair()
        except Exception:
            raise
        except BaseException:  # noqa: BLE001,S112 - the first one is raised by the caller
            continue


def repaired(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Return a method that repairs its object before an interrupt leaves it."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return method(self, *args, **keywords)
        except BkstoreError:
            raise
        except BaseException:
            repair(self)
            raise

    return call
