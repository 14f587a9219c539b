"""Jobs of a server's threads: all are done, in order where one thread does them, and together
only where they may be."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from bkstore.wire.server.thread_pools import JobPool, LoopQueue


class _Held:
    """Work that waits at its first jobs until it is let go; it notes what it had at once."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()
        self.done: list[list[int]] = []

    def __call__(self, jobs: list[int]) -> None:
        self.begun.set()
        self.gate.wait(30)
        self.done.append(jobs)


@pytest.mark.parametrize(
    ("joins", "wanted"),
    [
        (None, [[1], [2], [4], [6], [7], [8]]),
        (lambda number: number % 2 == 0, [[1], [2, 4, 6], [7], [8]]),
        (lambda _number: True, [[1], [2, 4, 6, 7, 8]]),
    ],
)
def test_what_is_done_together(
    joins: Callable[[int], bool] | None, wanted: list[list[int]]
) -> None:
    """Jobs that wait behind each other and may be joined are one work; their order stays."""
    work = _Held()
    pool = JobPool(1, "test", work, joins)
    pool.submit(1)
    assert work.begun.wait(30)
    for job in (2, 4, 6, 7, 8):
        pool.submit(job)
    work.gate.set()
    pool.shutdown()

    assert wanted == work.done


def test_threads_beside_each_other() -> None:
    """While one thread is held up another takes the next job, and all are done at the end."""
    first, others = threading.Event(), threading.Event()
    done = []

    def work(jobs: list[int]) -> None:
        if jobs == [0]:
            assert first.wait(30)
        done.extend(jobs)
        if len(done) == 50:
            others.set()

    pool = JobPool(2, "test", work)
    for job in range(51):
        pool.submit(job)

    assert others.wait(30)
    assert 0 not in done
    first.set()
    pool.shutdown()
    assert list(range(51)) == sorted(done)


def test_calls_into_a_loop() -> None:
    """Calls of a thread come in order, each once; a closed loop takes none."""
    told: list[int] = []

    async def run() -> LoopQueue:
        loop, last = asyncio.get_running_loop(), asyncio.Event()
        queue = LoopQueue(loop)

        def put() -> None:
            for number in range(1000):
                queue.put(told.append, number)
            queue.put(last.set)

        thread = threading.Thread(target=put)
        thread.start()
        await asyncio.wait_for(last.wait(), 30)
        thread.join()
        return queue

    queue = asyncio.run(run())

    assert list(range(1000)) == told
    queue.put(told.append, -1)
    assert 1000 == len(told)


def test_what_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A job or a call that raises is logged, and those behind it are done all the same."""
    told: list[int] = []

    def work(jobs: list[int]) -> None:
        told.append(10 // jobs[0])

    async def run() -> None:
        queue = LoopQueue(asyncio.get_running_loop())
        for number in (0, 5):
            queue.put(work, [number])
        await asyncio.sleep(0)

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(run())
        pool = JobPool(1, "test", work)
        for job in (0, 2, 0, 1):
            pool.submit(job)
        pool.shutdown()

    assert [2, 5, 10] == told
