"""Pace: no more than so many ledgers a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

_STRETCHES = 10
"""Stretches of ledgers a second: what is asked at once is a tenth of the rate, or one ledger."""


class Pace:
    """Lets stretches of ledgers through: before each the time of those before it must be over.

    `rate` is in ledgers a second, None = no limit; `now` tells seconds, and `wait` passes them: it
    returns whether to stop. Time that others took counts; it is not made up for by a faster pace.

    >>> waits = []
    >>> pace = Pace(20.0, lambda: sum(waits), waits.append)
    >>> [len(part) for part in pace.stretches(list(range(5)))], waits
    ([2, 2, 1], [0.1, 0.1])
    """

    def __init__(
        self, rate: float | None, now: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        """Take the rate, and the time."""
        self._rate = rate
        self._now = now
        self._wait = wait
        self._free: float | None = None
        self.stopped = False

    def stretches(self, ledgers: list[_T]) -> Iterator[list[_T]]:
        """Yield ledgers in parts, each when its time has come; end early where it is stopped."""
        rate = self._rate
        if rate is None:
            yield ledgers
            return
        step = max(1, int(rate / _STRETCHES))
        for at in range(0, len(ledgers), step):
            part = ledgers[at : at + step]
            now = self._now()
            free = now if self._free is None else max(now, self._free)
            if free > now and self._wait(free - now):
                self.stopped = True
                return
            self._free = free + len(part) / rate
            yield part
