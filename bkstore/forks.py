"""Open objects in a forked child: they register here, and are closed in the child.

A fork copies memory and descriptors, not threads. In the child, a lock that another thread held
stays locked forever, a pool has no workers, and both processes would write to the same file. So the
`_forked` of registered objects runs in the child before anything else: mostly it marks the object
as closed, and only the parent goes on. It flushes and removes nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from bkstore.errors import IllegalOperation


class Forkable(Protocol):
    """An object that must be told of a fork."""

    def _forked(self) -> None:
        """Run in the child: drop the parent's resources, without locking and without I/O."""


_registered: WeakSet[Forkable] = WeakSet()
_in_child = False


def register(forkable: Forkable) -> None:
    """Call `forkable._forked()` in each child forked from now on. Keeps only a weak reference."""
    _registered.add(forkable)


def closed_error(description: str) -> IllegalOperation:
    """Return the error for a call on a closed object; in a child it mentions the fork."""
    if _in_child:
        return IllegalOperation(
            f"{description} is closed (objects opened before a fork are closed in the child "
            "process: open it here, or after the fork)"
        )
    return IllegalOperation(f"{description} is closed")


def keep_forever(value: object) -> None:
    """Keep an object alive forever: its destructor would act on the parent's resources."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def drop_descriptors(descriptors: Iterable[int]) -> None:
    """Close the parent's sockets in the child: else peers would not notice that the parent closes
    them. Their numbers refer to /dev/null until the objects that own them close them."""
    dev_null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(dev_null, descriptor, inheritable=False)
    os.close(dev_null)


def _after_fork() -> None:
    """Close the registered objects in the child."""
    global _in_child
    _in_child = True
    for opened in list(_registered):
        opened._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
