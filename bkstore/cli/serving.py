"""While `bkstore serve` serves: its checkpoints, what it says of them, and how it is stopped."""

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

__all__ = ["ending_at_once", "until_stopped", "waited"]

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
        before = checkpoints.failures, checkpoints.problem
        checkpoints.run()
        if checkpoints.failures > before[0] and admin is not None:
            admin.counters.checkpoint_failed()
        if checkpoints.problem is not None and before[1] is None:
            tell(f"bkstore: read-only: {checkpoints.problem}")
        elif checkpoints.problem is None and before[1] is not None:
            tell("bkstore: a checkpoint succeeded: writable again")


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
