"""Workers: threads that ask several bookies at the same time.

A bookie of this process answers at once, and is asked in the caller's own thread. Over sockets
that would be one round trip after another, and a bookie that is silent would hold up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from bkstore import forks
from bkstore.arguments import whole
from bkstore.index.api import Closing

_A = TypeVar("_A")
_B = TypeVar("_B")

_check_threads = whole(1, 4096)


class Workers(Closing):
    """At most `threads` threads for each of two kinds of work, started as they are needed.

    What finds none free waits. Work of `start` may wait for a caller that waits for `each`, and so
    has threads of its own. Threads: safe. Fork: the child starts threads of its own.

    >>> with Workers(2) as workers:
    ...     list(workers.each(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, threads: int = 64) -> None:
        self._threads = _check_threads("threads", threads)
        self._begin()
        forks.register(self)

    def _begin(self) -> None:
        self._finished = False
        self._asking = ThreadPoolExecutor(self._threads, "bkstore-ask")
        self._sending = ThreadPoolExecutor(self._threads, "bkstore-send")

    def each(self, work: Callable[[_A], _B], items: Iterable[_A]) -> Iterator[_B]:
        """Begin `work` on all items at once; yield what it returns, in order, or raise its error.

        A single item is done in the caller's thread.
        """
        known = list(items)
        if len(known) == 1:
            return map(work, known)
        futures = [_begun(self._asking, work, item) for item in known]
        return (future.result() for future in futures)

    @property
    def finished(self) -> bool:
        """Whether `start` takes no more work."""
        return self._finished

    def start(self, work: Callable[..., _B], *arguments: Any) -> Future[_B]:
        """Begin one piece of work; `IllegalOperation` once this has finished."""
        return _begun(self._sending, work, *arguments)

    def finish(self) -> None:
        """Take no more work for `start`, and return when what has begun is done. Idempotent."""
        self._finished = True
        self._sending.shutdown()

    def close(self) -> None:
        """Take no more work, and return when what has begun is done. Idempotent."""
        self.finish()
        self._asking.shutdown()

    def _forked(self) -> None:
        forks.leak(self._asking)
        forks.leak(self._sending)
        self._begin()


def _begun(pool: ThreadPoolExecutor, work: Callable[..., _B], *arguments: Any) -> Future[_B]:
    try:
        return pool.submit(work, *arguments)
    except RuntimeError:
        raise forks.closed("this client") from None
