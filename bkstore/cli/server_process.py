"""The main loop of `bkstore serve`: checkpoints, messages about its state, and stopping."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.network.checkpoints import CheckpointRunner
    from bkstore.network.disk_watch import DiskOptions
    from bkstore.network.settings import ServerSettings
    from bkstore.wire.admin import AdminServer
    from bkstore.wire.server import BookieServer

FORCED_READ_ONLY_REASON = "forceReadOnlyBookie is set"

_CHECKPOINT_RETRY_SECONDS = 10.0
"""Maximum seconds before a failed checkpoint is retried."""


def checkpoint_until_stopped(
    has_ended: Callable[[float], bool],
    checkpoints: CheckpointRunner,
    admin: AdminServer | None,
    interval: float,
) -> None:
    """Make a checkpoint every `interval` seconds, sooner after a failed one, until the server has
    ended. `has_ended` waits the given seconds for that and returns whether it came."""
    retry_interval = min(interval, _CHECKPOINT_RETRY_SECONDS)
    while not has_ended(interval if checkpoints.problem is None else retry_interval):
        failures = checkpoints.failures
        checkpoints.run_if_needed()
        if checkpoints.failures > failures and admin is not None:
            admin.counters.count_checkpoint_failure()


def print_state_change(reason: str | None) -> None:
    """Print why the bookie has become read-only, or (None) that it is writable again."""
    print_stderr("bkstore: writable again" if reason is None else f"bkstore: read-only: {reason}")


def print_garbage_problem(problem: str | None) -> None:
    """Print why garbage collection fails or judges no ledger, or (None) that it works again."""
    print_stderr(f"bkstore: garbage collection: {problem or 'works again'}")


class StateChanges:
    """A callback for when the bookie becomes read-only or writable; it prints a message. If the
    settings forbid read-only bookies, it then sets `must_stop`, and the command ends."""

    def __init__(self, settings: ServerSettings) -> None:
        self._never_read_only = settings.stop_when_full
        self._always_read_only = settings.read_only
        self.must_stop = False

    def __call__(self, reason: str | None) -> None:
        """Report why the bookie is read-only now, or (None) that it is writable again."""
        print_state_change(reason)
        if reason is not None and self._never_read_only and not self.must_stop:
            self.must_stop = True
            print_stderr("bkstore: stopping, as readOnlyModeEnabled is false")

    def guard_set_read_only(self, set_state: Callable[[bool], object]) -> Callable[[bool], None]:
        """Return a wrapper that raises `InvalidArgument` for changes the settings forbid."""

        def set_if_permitted(read_only: bool) -> None:
            """Set the state, unless an option of the server forbids it."""
            if read_only and self._never_read_only:
                raise InvalidArgument("readOnlyModeEnabled is false: the bookie stays writable")
            if not read_only and self._always_read_only:
                raise InvalidArgument(f"{FORCED_READ_ONLY_REASON}: the bookie stays read-only")
            set_state(read_only)

        return set_if_permitted


class StandaloneBookie:
    """A bookie outside any cluster, read-only on request or for problems, such as a full disk."""

    def __init__(
        self,
        server: BookieServer,
        checkpoints: CheckpointRunner,
        limits: DiskOptions | None,
        find_problem: Callable[[], str | None],
        on_state_change: Callable[[str | None], object],
    ) -> None:
        """Watch the disks in a thread, unless `limits` is None. `find_problem` returns why the
        bookie must be read-only for another reason, or None; `on_state_change` is called with the
        reason when it becomes read-only, and with None when it is writable again."""
        from bkstore.network.disk_watch import DiskWatch

        self._server = server
        self._find_problem = find_problem
        self._on_state_change = on_state_change
        self._operator_reason: str | None = None
        """Why the bookie is read-only if an operator made it so, else None."""
        self._disk_watch = None if limits is None else DiskWatch(server.bookie, limits)
        self._interval = math.inf if limits is None else limits.interval
        self._lock = threading.Lock()
        self._ended = threading.Event()
        checkpoints.on_problem_changed = self.update_read_only
        self.update_read_only()
        self._thread = threading.Thread(target=self._watch_disk, name="bkstore-disks", daemon=True)
        if limits is not None:
            self._thread.start()

    def update_read_only(self) -> None:
        """Make the server read-only if an operator asked for it, a problem was found or a disk is
        full, else writable; report a change of state."""
        with self._lock:
            was_read_only = self._server.read_only
            reason = self._operator_reason or self._find_problem()
            if reason is None and self._disk_watch is not None:
                reason = self._disk_watch.find_read_only_reason(was_read_only)
            if (reason is not None) != was_read_only:
                self._server.read_only = reason is not None
                self._on_state_change(reason)

    def set_read_only(self, read_only: bool) -> None:
        """Make the bookie read-only until this is called with False."""
        from bkstore.network.registered_bookie import OPERATOR_REASON

        self._operator_reason = OPERATOR_REASON if read_only else None
        self.update_read_only()

    def _watch_disk(self) -> None:
        while not self._ended.wait(self._interval):
            self.update_read_only()

    def close(self) -> None:
        """Stop checking the disks. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def wait_for_end(server: BookieServer, changes: StateChanges, seconds: float) -> bool:
    """Wait at most `seconds`; return whether the server has ended or has to stop. In steps of a
    second: a signal delivered to another thread does not wake the main thread, which handles it."""
    deadline = time.monotonic() + seconds
    while (remaining := deadline - time.monotonic()) > 0:
        if changes.must_stop or server.wait(min(remaining, 1.0)):
            return True
    return changes.must_stop
