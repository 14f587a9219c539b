"""While `bkstore serve` serves: its checkpoints, what it says of its state, how it is stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bkstore.cli.terminal.messages import tell

if TYPE_CHECKING:
    from bkstore.network.checkpoints import Checkpoints
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.server import BookieServer

__all__ = ["LoneBookie", "ending_at_once", "tell_state", "until_stopped", "waited"]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRY_AGAIN = 10.0
"""Seconds after which a checkpoint that failed is tried again, at the latest."""


def until_stopped(
    ended: Callable[[float], bool],
    checkpoints: Checkpoints,
    admin: AdminServer | None,
    interval: float,
) -> None:
    """Checkpoint now and then, until the server has ended: `ended` waits so long for that."""
    while not ended(interval if checkpoints.problem is None else min(interval, _TRY_AGAIN)):
        failures = checkpoints.failures
        checkpoints.run()
        if checkpoints.failures > failures and admin is not None:
            admin.counters.checkpoint_failed()


class LoneBookie:
    """A bookie that serves in no cluster: read-only while checkpoints fail, or by order."""

    def __init__(self, server: BookieServer, checkpoints: Checkpoints) -> None:
        self._server = server
        self._checkpoints = checkpoints
        self._wanted: str | None = None
        checkpoints.changed = self.check

    def check(self) -> None:
        """Become read-only or writable, as things are."""
        reason = self._wanted or self._checkpoints.problem
        if (reason is not None) != self._server.read_only:
            self._server.read_only = reason is not None
            tell_state(reason)

    def set_read_only(self, wanted: bool) -> None:
        """Be read-only until this is called with False."""
        from bkstore.network.registered_bookie import READ_ONLY_BY_ORDER

        self._wanted = READ_ONLY_BY_ORDER if wanted else None
        self.check()


def tell_state(reason: str | None) -> None:
    """Say that the bookie has become read-only and why, or that it is writable again (None)."""
    tell("bkstore: writable again" if reason is None else f"bkstore: read-only: {reason}")


def waited(server: BookieServer, seconds: float) -> bool:
    """Wait for the end of a server, so long at most; return whether it has ended.

    In steps of a second: a signal that the system gave to another thread wakes nobody, and is
    seen by the main thread when it runs again.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if server.wait(min(left, 1.0)):
            return True
    return False


@contextmanager
def ending_at_once() -> Iterator[Callable[[], None]]:
    """Yield what is called when the stop begins: from then on a signal ends the process at once.

    That is as a kill: what was acknowledged is in the journals, and the next start replays them.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _STOPPING} if main else {}

    def begin() -> None:
        for number in before:
            signal.signal(number, signal.SIG_DFL)

    try:
        yield begin
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
