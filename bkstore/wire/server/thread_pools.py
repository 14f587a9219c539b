"""Thread pools of a server, and the queue of their calls into the loop.

Waking a thread costs tens of microseconds while others run. Under load a thread finds the next job
without sleeping, several are done together, and the loop takes many results at one wakeup.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

_Job = TypeVar("_Job")


class JobPool(Generic[_Job]):
    """Threads that do jobs in the order of submission. `run_jobs` gets one job at a time, or all
    consecutive waiting jobs for which `is_joinable` returns True. An exception that it raises is
    logged, and the threads go on with the next jobs."""

    def __init__(
        self,
        thread_count: int,
        name: str,
        run_jobs: Callable[[list[_Job]], None],
        is_joinable: Callable[[_Job], bool] | None = None,
    ) -> None:
        """Start the threads."""
        self._run_jobs = run_jobs
        self._is_joinable = is_joinable or (lambda _job: False)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [Thread(None, self._work, name, daemon=True) for _ in range(thread_count)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: _Job) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def _work(self) -> None:
        """Do jobs until `shutdown`, which puts a None into the queue: it ends the threads."""
        job = self._jobs.get()
        while job is not None:
            jobs = [job]
            next_job: _Job | None = None
            # a joinable job takes along those behind it; the first that does not join is next
            joins = self._is_joinable(job)
            while joins and (next_job := self._take_waiting()) is not None:
                if not self._is_joinable(next_job):
                    break
                jobs.append(next_job)
            try:
                self._run_jobs(jobs)
            except Exception:  # noqa: BLE001 - logged; the thread is there for the jobs of others
                _log.exception("%d jobs of a server failed", len(jobs))
            job = self._jobs.get() if next_job is None else next_job

    def _take_waiting(self) -> _Job | None:
        """Return the next job without waiting, or None if the queue is empty or shut down. The None
        that marks the shutdown stays in the queue, where each thread's `_work` has to find it."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:
            self._jobs.put(None)
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
            self._loop.call_soon_threadsafe(self._run_calls)

    def _run_calls(self) -> None:
        """Run the calls that have come, in the loop's thread."""
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._wakeup_pending = False
        for function, arguments in calls:
            try:
                function(*arguments)
            except Exception:  # noqa: BLE001 - logged; later calls are for other clients
                _log.exception("a call into the loop of a server failed")
