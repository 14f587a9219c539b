"""Jobs of a server's threads, and what they hand back to the loop: many for one waking.

Waking a thread costs tens of microseconds beside others that run. Under load there is always the
next job, so that a thread need not sleep, several jobs that can be done together, and results
that the loop takes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["JobPool", "LoopQueue"]

_Job = TypeVar("_Job")


class JobPool(Generic[_Job]):
    """Threads that do jobs in the order in which they came.

    `work` does some of them and raises nothing; it has one job at a time, or all that wait and
    follow each other of which `joins` says that they may be done together. `executor` runs the
    threads, and takes other calls too.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        work: Callable[[list[_Job]], None],
        joins: Callable[[_Job], bool] | None = None,
    ) -> None:
        self.executor = ThreadPoolExecutor(threads, name)
        self._threads = threads
        self._work = work
        self._joins = joins or (lambda _job: False)
        self._jobs: deque[_Job] = deque()
        self._running = 0
        self._lock = Lock()

    def submit(self, job: _Job) -> None:
        """Have a job done."""
        with self._lock:
            self._jobs.append(job)
            if self._running == self._threads:
                return
            self._running += 1
        self.executor.submit(self._run)

    def _run(self) -> None:
        while jobs := self._take():
            self._work(jobs)

    def _take(self) -> list[_Job]:
        """Take the next jobs; none: this thread has ended."""
        with self._lock:
            if not self._jobs:
                self._running -= 1
                return []
            jobs = [self._jobs.popleft()]
            if self._joins(jobs[0]):
                while self._jobs and self._joins(self._jobs[0]):
                    jobs.append(self._jobs.popleft())
            return jobs

    def shutdown(self) -> None:
        """Do all jobs that are there, then end the threads."""
        self.executor.shutdown()


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
            function(*arguments)
