"""Repairs that end at any call of a bookie or of the store: the next one comes to the same end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster.client.ledger_access import ClientContext
from bkstore.cluster.in_process.bookie_client import LocalClient
from bkstore.errors import BookieUnavailable, MetadataUnavailable, SystemRefused
from bkstore.ids import LedgerId
from bkstore.repair import Repairer, RepairOptions
from tests.repair.lossy_worlds import LossyWorld, impossible_entries, open_world

WORLD = 5
"""The seed of the world: entries are written, bookies replaced, and some entries have no copy."""

_COUNTED_CALLS = (
    "availability",
    "add_batch",
    "add_entry",
    "read_entry",
    "read_entries",
    "read_many",
)

_ENDING_ERRORS = (SystemRefused, MetadataUnavailable)
"""Errors that end a repair by an exception, wherever they occur."""

EndState = dict[LedgerId, tuple[Any, dict[str, list[int]]]]


class ProcessKilled(BaseException):
    """The process ends: nothing after the call happens, no error is handled."""


class Countdown:
    """Raises an error at a call, and, if the process is killed, at all calls after it. Only calls
    that can raise the error are counted."""

    def __init__(self, call: int, error: BaseException) -> None:
        self.calls = 0
        self.error = error
        self._call = call
        self._lock = threading.Lock()

    @property
    def has_raised(self) -> bool:
        """Whether a call has failed."""
        return 0 < self._call <= self.calls

    def __call__(self, own_error: type[BaseException]) -> None:
        """Count a call that raises `own_error` if its server does not answer."""
        is_killed = isinstance(self.error, ProcessKilled)
        if not isinstance(self.error, ProcessKilled | SystemRefused | own_error):
            return
        with self._lock:
            self.calls += 1
            if self.calls == self._call or (is_killed and 0 < self._call < self.calls):
                raise self.error


class FailingClient(LocalClient):
    """A client of a bookie whose calls are counted, before and after they are done."""

    def __init__(self, client: LocalClient, countdown: Countdown) -> None:
        super().__init__(client.server, client.client_name)
        self._countdown = countdown

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in _COUNTED_CALLS:
            return value
        countdown = self._countdown

        def call(*args: Any, **options: Any) -> Any:
            countdown(BookieUnavailable)
            result = value(*args, **options)
            countdown(BookieUnavailable)
            return result

        return call


class FailingStore:
    """A metadata store whose changes and reads of single ledgers are counted likewise."""

    def __init__(self, store: Any, countdown: Countdown) -> None:
        self._store = store
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, ledger: LedgerId) -> Any:
        """Read, or fail."""
        self._countdown(MetadataUnavailable)
        return self._store.read(ledger)

    def write(self, metadata: Any, version: int) -> int:
        """Write, and fail before or after it."""
        self._countdown(MetadataUnavailable)
        written: int = self._store.write(metadata, version)
        self._countdown(MetadataUnavailable)
        return written


def _run(world: LossyWorld, countdown: Countdown) -> None:
    """Run a repair that fails at a call."""
    clients = {name: FailingClient(each, countdown) for name, each in world.cluster.bookies.items()}
    store: Any = FailingStore(world.cluster.store, countdown)
    context = ClientContext(store, clients, world.cluster.context.placement)
    try:
        Repairer(context, options=RepairOptions(parallel=1)).run()
    except (ProcessKilled, *_ENDING_ERRORS):
        return
    assert not (countdown.has_raised and isinstance(countdown.error, _ENDING_ERRORS))


def _end_state(world: LossyWorld) -> EndState:
    """Return the segments of each ledger, and the entries that each running bookie has of it."""
    return {
        ledger: (
            world.cluster.store.read(ledger).metadata.segments,
            {name: world.cluster.bookie(name).entries(ledger).tolist() for name in world.running()},
        )
        for ledger in world.cluster.store.ledgers()
    }


def _undisturbed(top: Path, error: BaseException) -> tuple[int, EndState]:
    """Return how many calls of a repair of the world can raise an error, and how it ends."""
    world, countdown = open_world(top, WORLD), Countdown(0, error)
    try:
        _run(world, countdown)
        return countdown.calls, _end_state(world)
    finally:
        world.cluster.close()


def _judge(top: Path, calls: Iterable[int], error: BaseException, end: EndState) -> None:
    for call in calls:
        world = open_world(top / f"{type(error).__name__}-{call}", WORLD)
        try:
            _run(world, Countdown(call, error))
            sound = dict(world.read_all())
            assert world.sound.items() <= sound.items()
            report = Repairer(world.cluster.context).run()
            assert {"repaired", "impossible"} >= {each.status for each in report.repairs}
            assert world.to_stay_lost == impossible_entries(report.repairs)
            assert sound.items() <= dict(world.read_all()).items()
            assert end == _end_state(world), f"{error!r} at call {call}"
        finally:
            world.cluster.close()


ERRORS = [
    ProcessKilled(),
    BookieUnavailable("it is down"),
    MetadataUnavailable("no answer"),
    SystemRefused("a connection", OSError(errno.EMFILE, "Too many open files")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_some_calls(tmp_path: Path, error: BaseException) -> None:
    """A call in the middle, and the last one."""
    calls, end = _undisturbed(tmp_path / "undisturbed", error)
    assert calls > 10
    _judge(tmp_path, (calls // 2, calls), error, end)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_call(tmp_path: Path, error: BaseException) -> None:
    """Every call of a repair fails, or is the last one, once."""
    calls, end = _undisturbed(tmp_path / "undisturbed", error)
    _judge(tmp_path, range(1, calls + 1), error, end)
