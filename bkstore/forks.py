"""What becomes of open things in a forked child, where neither locks nor threads are its own.

A fork copies memory and descriptors, not threads. A lock that another thread held is locked for
ever in the child, a pool has no workers, two processes would write one file. So what cannot be
shared registers here, and its `_forked` runs in the child before anything else does: mostly, it
counts as closed from then on, and the parent goes on alone. Nothing is flushed or removed for it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from bkstore.errors import IllegalOperation


class Forkable(Protocol):
    """Something that has to know of a fork."""

    def _forked(self) -> None:
        """Run in the child: let go of what is the parent's, without a lock, without I/O."""


_held: WeakSet[Forkable] = WeakSet()
_in_child = False


def register(opened: Forkable) -> None:
    """Call `opened._forked()` in each child that is forked from now on; held weakly."""
    _held.add(opened)


def closed(what: str) -> IllegalOperation:
    """Return the error for a call on something closed, which a fork may have done."""
    if _in_child:
        return IllegalOperation(
            f"{what} is closed (what was open before a fork is closed in the child: "
            "open it anew here, or after the fork)"
        )
    return IllegalOperation(f"{what} is closed")


def leak(value: object) -> None:
    """Keep a parent's object for good: its destructor would act on what is not the child's."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def drop_descriptors(descriptors: Iterable[int]) -> None:
    """Let go of the parent's sockets in the child; their numbers stay taken.

    As long as the child had them, who is connected would wait for an end that the parent has
    made. Each number leads nowhere until the object that has it closes it.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _after_fork() -> None:
    global _in_child
    _in_child = True
    for opened in list(_held):
        opened._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
