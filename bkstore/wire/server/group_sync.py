"""GroupSync: one journal sync for all that was written since the last one began."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bkstore.wire.server.requests.operations import Answer
from bkstore.wire.status import Status

_log = logging.getLogger(__name__)

_Deliver = Callable[[Sequence[Answer]], None]


class _Waiting(NamedTuple):
    answers: Sequence[Answer]
    deliver: _Deliver


class GroupSync:
    """A thread that syncs the journals and then lets answers go.

    `sync` makes everything durable that was written before it was called, and returns EOK or what
    to answer instead. While one runs, others gather for the next: so many writers share few
    syncs, and nobody waits for more than two. What waits is bounded by the requests that
    connections may have waiting.
    """

    def __init__(self, sync: Callable[[], Status]) -> None:
        self._sync = sync
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="bkstore-sync", daemon=True)
        self._thread.start()

    def put(self, answers: Sequence[Answer], deliver: _Deliver) -> None:
        """Call `deliver` with the answers when what they say is durable, from the thread."""
        self.put_many([(answers, deliver)])

    def put_many(self, waiting: Iterable[tuple[Sequence[Answer], _Deliver]]) -> None:
        """Likewise for several, each with answers of its own."""
        with self._changed:
            self._waiting += [_Waiting(*each) for each in waiting]
            self._changed.notify()

    def close(self) -> None:
        """Deliver what waits, then end the thread."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._ends):
                    self._changed.wait()
                group, self._waiting = self._waiting, []
            if not group:
                return
            try:
                status = self._sync()
            except Exception:  # noqa: BLE001 - logged, and answered
                _log.exception("the journals could not be synced")
                status = Status.EIO
            for waiting in group:
                waiting.deliver(_after(waiting.answers, status))


def _after(answers: Sequence[Answer], status: Status) -> Sequence[Answer]:
    """Return the answers after a sync: none is EOK after one that failed."""
    if status is Status.EOK:
        return answers
    return [
        answer.operation.refuse(status) if answer.status is Status.EOK else answer
        for answer in answers
    ]
