"""Thread pools of a server, the group sync of its writes, and the queue of calls into the loop.

Waking a thread costs tens of microseconds while others run. Under load a thread finds the next job
without sleeping, several are done together, and the loop takes many results at one wakeup.
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

from bkstore.wire.server.requests.operations import EncodedResponse
from bkstore.wire.status_codes import Status

_log = logging.getLogger(__name__)

_Job = TypeVar("_Job")
_Deliver = Callable[[Sequence[EncodedResponse]], None]


class JobPool(Generic[_Job]):
    """Threads that do jobs in the order of submission.

    `run_jobs` gets one job at a time, or all consecutive waiting jobs for which `is_joinable`
    returns True. An exception that it raises is logged, and the threads go on with the next jobs.
    """

    def __init__(
        self,
        thread_count: int,
        name: str,
        run_jobs: Callable[[list[_Job]], None],
        is_joinable: Callable[[_Job], bool] | None = None,
    ) -> None:
        self._work = run_jobs
        self._may_join = is_joinable or (lambda _job: False)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, name=name, daemon=True) for _ in range(thread_count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: _Job) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def _run(self) -> None:
        """Do jobs until `shutdown`; a None in the queue ends one thread."""
        job = self._jobs.get()
        while job is not None:
            jobs = [job]
            next_job: _Job | None = None
            may_join = self._may_join(job)
            while may_join and (next_job := self._take_waiting()) is not None:
                if not self._may_join(next_job):
                    break
                jobs.append(next_job)
                next_job = None
            try:
                self._work(jobs)
            except Exception:  # noqa: BLE001 - logged; the thread is there for the jobs of others
                _log.exception("%d jobs of a server failed", len(jobs))
            job = self._jobs.get() if next_job is None else next_job

    def _take_waiting(self) -> _Job | None:
        """Return the next job without waiting, or None if the queue is empty or shut down."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)  # put back, for `_run` to end with
        return job

    def shutdown(self) -> None:
        """Do all queued jobs, then end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class LoopQueue:
    """Calls from threads into a loop, in order; all calls queued together cost one wakeup."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._wakeup_pending = False
        self._lock = Lock()

    def put(self, function: Callable[..., None], *arguments: object) -> None:
        """Have the loop call a function; does nothing once the loop is closed."""
        with self._lock:
            self._calls.append((function, arguments))
            if self._wakeup_pending:
                return
            self._wakeup_pending = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._wakeup_pending = False
        for function, arguments in calls:
            try:
                function(*arguments)
            except Exception:  # noqa: BLE001 - logged; later calls are for other clients
                _log.exception("a call into the loop of a server failed")


class GroupSync:
    """A thread that syncs the journals and then delivers the answers that waited for it.

    `sync` makes durable what was written before the call, and returns EOK or the status to answer
    instead. Answers that come during a sync wait for the next one: many writers share few syncs,
    and no answer waits for more than two. Connections limit their requests, so also these answers.
    """

    def __init__(self, sync: Callable[[], Status]) -> None:
        self._sync = sync
        self._changed = Condition()
        self._unsynced: list[tuple[Sequence[EncodedResponse], _Deliver]] = []
        self._is_closing = False
        self._thread = Thread(target=self._run, name="bkstore-sync", daemon=True)
        self._thread.start()

    def put(self, answers: Sequence[EncodedResponse], deliver: _Deliver) -> None:
        """Call `deliver` with the answers, from the sync thread, after the next sync."""
        self.put_many([(answers, deliver)])

    def put_many(self, deliveries: Iterable[tuple[Sequence[EncodedResponse], _Deliver]]) -> None:
        """Call each `deliver` with its answers, from the sync thread, after the next sync."""
        with self._changed:
            self._unsynced += deliveries
            self._changed.notify()

    def close(self) -> None:
        """Sync for and deliver the waiting answers, then end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._unsynced or self._is_closing):
                    self._changed.wait()
                group, self._unsynced = self._unsynced, []
            if not group:
                return
            try:
                status = self._sync()
            except Exception:  # noqa: BLE001 - logged, and answered
                _log.exception("the journals could not be synced")
                status = Status.EIO
            for answers, deliver in group:
                deliver(answers if status is Status.EOK else _refuse_unsynced(answers, status))


def _refuse_unsynced(
    answers: Sequence[EncodedResponse], status: Status
) -> Sequence[EncodedResponse]:
    """Return the answers with each EOK replaced by a refusal with the failed sync's status."""
    return [
        answer.operation.refuse(status) if answer.status is Status.EOK else answer
        for answer in answers
    ]
