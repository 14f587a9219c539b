"""While `bkstore serve` serves: its checkpoints, what it says of its state, how it is stopped."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bkstore.cli.terminal.messages import tell
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.network.checkpoints import Checkpoints
    from bkstore.network.disk_watch import DiskOptions
    from bkstore.network.settings import ServerSettings
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.server import BookieServer

FORCED = "forceReadOnlyBookie is set"

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


def tell_state(reason: str | None) -> None:
    """Say that the bookie has become read-only and why, or that it is writable again (None)."""
    tell("bkstore: writable again" if reason is None else f"bkstore: read-only: {reason}")


def tell_garbage(problem: str | None) -> None:
    """Say why garbage collection fails or judges no ledger, or that it works again (None)."""
    tell(f"bkstore: garbage collection: {problem or 'works again'}")


class StateChanges:
    """What the command does when the bookie has become read-only or writable.

    It says so. Where the settings have no read-only bookies the command is to stop: `stops` is
    true from then on.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._stop_when_full = settings.stop_when_full
        self._forced = settings.read_only
        self.stops = False

    def __call__(self, reason: str | None) -> None:
        """Take why the bookie is read-only now, None if it is writable again."""
        tell_state(reason)
        if reason is not None and self._stop_when_full and not self.stops:
            self.stops = True
            tell("bkstore: stopping, as readOnlyModeEnabled is false")

    def allowed(self, set_read_only: Callable[[bool], object]) -> Callable[[bool], None]:
        """Return what calls this where the settings allow it, and raises `InvalidArgument` else."""

        def change(wanted: bool) -> None:
            if wanted and self._stop_when_full:
                raise InvalidArgument("readOnlyModeEnabled is false: the bookie stays writable")
            if not wanted and self._forced:
                raise InvalidArgument(f"{FORCED}: the bookie stays read-only")
            set_read_only(wanted)

        return change


class LoneBookie:
    """A bookie that serves in no cluster: read-only while there is a problem, or by order.

    `limits` are those of its disks, which are looked at now and then; without them they are not.
    """

    def __init__(
        self,
        server: BookieServer,
        checkpoints: Checkpoints,
        limits: DiskOptions | None,
        problem: Callable[[], str | None],
        changed: Callable[[str | None], object],
    ) -> None:
        from bkstore.network.disk_watch import DiskWatch

        self._server = server
        self._problem = problem
        self._changed = changed
        self._wanted: str | None = None
        self._watch = None if limits is None else DiskWatch(server.bookie, limits)
        self._interval = math.inf if limits is None else limits.interval
        self._lock = threading.Lock()
        self._ended = threading.Event()
        checkpoints.changed = self.check
        self.check()
        self._thread = threading.Thread(target=self._run, name="bkstore-disks", daemon=True)
        if limits is not None:
            self._thread.start()

    def check(self) -> None:
        """Become read-only or writable, as things are."""
        with self._lock:
            was = self._server.read_only
            reason = self._wanted or self._problem()
            if reason is None and self._watch is not None:
                reason = self._watch.reason(was)
            if (reason is not None) != was:
                self._server.read_only = reason is not None
                self._changed(reason)

    def set_read_only(self, wanted: bool) -> None:
        """Be read-only until this is called with False."""
        from bkstore.network.registered_bookie import READ_ONLY_BY_ORDER

        self._wanted = READ_ONLY_BY_ORDER if wanted else None
        self.check()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self.check()

    def close(self) -> None:
        """Look at the disks no more. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def waited(server: BookieServer, changes: StateChanges, seconds: float) -> bool:
    """Wait for the end of a server, so long at most; return whether it has ended, or is to stop.

    In steps of a second: a signal that the system gave to another thread wakes nobody, and is
    seen by the main thread when it runs again.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if changes.stops or server.wait(min(left, 1.0)):
            return True
    return changes.stops


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
