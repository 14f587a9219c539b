"""Workers: threads that send requests to several bookies at the same time.

In one process the caller's own thread is enough; over sockets it would wait for each in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from bkstore import forks
from bkstore.arguments import integer
from bkstore.index.api import Closeable

_A = TypeVar("_A")
_B = TypeVar("_B")

_check_threads = integer(1, 4096)


class Workers(Closeable):
    """Two pools of at most `threads` threads each, started as needed; excess work queues.

    Work of `submit` may wait for a caller that waits for `map`, so each of the two has its own
    pool. Thread-safe. Fork: the child starts its own threads.

    >>> with Workers(2) as workers:
    ...     list(workers.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, threads: int = 64) -> None:
        self._threads = _check_threads("threads", threads)
        self._create_pools()
        forks.register(self)

    def _create_pools(self) -> None:
        self._finished = False
        self._each_pool = ThreadPoolExecutor(self._threads, "bkstore-ask")
        self._start_pool = ThreadPoolExecutor(self._threads, "bkstore-send")

    def map(self, work: Callable[[_A], _B], items: Iterable[_A]) -> Iterator[_B]:
        """Start `work` on all items at once; yield the results in order, or raise its error. For a
        single item `work` runs in the caller's thread."""
        work_items = list(items)
        if len(work_items) == 1:
            return map(work, work_items)
        futures = [_submit(self._each_pool, work, item) for item in work_items]
        return (future.result() for future in futures)

    @property
    def is_finished(self) -> bool:
        """Whether `submit` accepts no more work."""
        return self._finished

    def submit(self, work: Callable[..., _B], *arguments: Any) -> Future[_B]:
        """Start `work` in a thread; raises `IllegalOperation` after `finish`."""
        return _submit(self._start_pool, work, *arguments)

    def finish(self) -> None:
        """Accept no more work of `submit`; wait until started work is done. Idempotent."""
        self._finished = True
        self._start_pool.shutdown()

    def close(self) -> None:
        """Accept no more work; wait until started work is done. Idempotent."""
        self.finish()
        self._each_pool.shutdown()

    def _forked(self) -> None:
        forks.keep_forever(self._each_pool)
        forks.keep_forever(self._start_pool)
        self._create_pools()


def _submit(pool: ThreadPoolExecutor, function: Callable[..., _B], *arguments: Any) -> Future[_B]:
    try:
        return pool.submit(function, *arguments)
    except RuntimeError:
        raise forks.closed_error("this client") from None
