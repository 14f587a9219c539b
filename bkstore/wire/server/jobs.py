"""Jobs of a server's threads, the sync that they share, and what they hand back to the loop.

Waking a thread costs tens of microseconds beside others that run. Under load there is always the
next job, so that a thread need not sleep, several jobs that can be done together, and results
that the loop takes at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

from bkstore.wire.server.requests.operations import Answer
from bkstore.wire.status import Status

_log = logging.getLogger(__name__)

_Job = TypeVar("_Job")
_Deliver = Callable[[Sequence[Answer]], None]


class JobPool(Generic[_Job]):
    """Threads that do jobs in the order in which they came.

    `work` does some of them: one at a time, or all that wait and follow each other of which
    `joins` says that they may be done together. What it raises is logged, and the next jobs are
    done.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        work: Callable[[list[_Job]], None],
        joins: Callable[[_Job], bool] | None = None,
    ) -> None:
        self._work = work
        self._joins = joins or (lambda _job: False)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: _Job) -> None:
        """Have a job done."""
        self._jobs.put(job)

    def _run(self) -> None:
        job = self._jobs.get()
        while job is not None:
            jobs = [job]
            following: _Job | None = None
            joined = self._joins(job)
            while joined and (following := self._waiting()) is not None:
                if not self._joins(following):
                    break
                jobs.append(following)
                following = None
            try:
                self._work(jobs)
            except Exception:  # noqa: BLE001 - logged; the thread is there for the jobs of others
                _log.exception("%d jobs of a server failed", len(jobs))
            job = self._jobs.get() if following is None else following

    def _waiting(self) -> _Job | None:
        """Return the next job; None where there is none yet, and where there will be none."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)  # for `_run` to end with
        return job

    def shutdown(self) -> None:
        """Do all jobs that are there, then end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class LoopQueue:
    """Calls from threads into a loop, in order; all that came together cost one waking of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._woken = False
        self._lock = Lock()

    def put(self, function: Callable[..., None], *arguments: object) -> None:
        """Call something in the loop; nothing once that is closed, as nobody waits then."""
        with self._lock:
            self._calls.append((function, arguments))
            if self._woken:
                return
            self._woken = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._woken = False
        for function, arguments in calls:
            try:
                function(*arguments)
            except Exception:  # noqa: BLE001 - logged; those behind it are of other clients
                _log.exception("a call into the loop of a server failed")


class GroupSync:
    """A thread that syncs the journals and then lets answers go.

    `sync` makes everything durable that was written before it was called, and returns EOK or what
    to answer instead. While one runs, others gather for the next: so many writers share few
    syncs, and nobody waits for more than two. What waits is bounded by the requests that
    connections may have waiting.
    """

    def __init__(self, sync: Callable[[], Status]) -> None:
        self._sync = sync
        self._changed = Condition()
        self._waiting: list[tuple[Sequence[Answer], _Deliver]] = []
        self._ends = False
        self._thread = Thread(target=self._run, name="bkstore-sync", daemon=True)
        self._thread.start()

    def put(self, answers: Sequence[Answer], deliver: _Deliver) -> None:
        """Call `deliver` with the answers when what they say is durable, from the thread."""
        self.put_many([(answers, deliver)])

    def put_many(self, waiting: Iterable[tuple[Sequence[Answer], _Deliver]]) -> None:
        """Likewise for several, each with answers of its own."""
        with self._changed:
            self._waiting += waiting
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
            for answers, deliver in group:
                deliver(answers if status is Status.EOK else _refused(answers, status))


def _refused(answers: Sequence[Answer], status: Status) -> Sequence[Answer]:
    """Return the answers after a sync that failed: none is EOK."""
    return [
        answer.operation.refuse(status) if answer.status is Status.EOK else answer
        for answer in answers
    ]
