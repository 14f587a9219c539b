"""Throttle: limits the rate of an audit, in ledgers a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

_GROUPS_PER_SECOND = 10
"""Groups of ledgers a second: a group is a tenth of the rate, or one ledger."""


class Throttle:
    """Yields ledgers in groups, and waits before each until the rate allows it.

    `rate` is in ledgers a second, None = no limit. `now` returns the time in seconds; `wait` sleeps
    for some, and returns true to stop. A higher rate never makes up for a delay.

    >>> waits = []
    >>> throttle = Throttle(20.0, lambda: sum(waits), waits.append)
    >>> [len(group) for group in throttle.groups(list(range(5)))], waits
    ([2, 2, 1], [0.1, 0.1])
    """

    def __init__(
        self, rate: float | None, now: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._rate = rate
        self._now = now
        self._wait = wait
        self._next_start: float | None = None  # when the rate allows the next group
        self.stopped = False  # whether `wait` returned a true value

    def groups(self, ledgers: list[_T]) -> Iterator[list[_T]]:
        """Yield ledgers in groups, each when the rate allows it. If `wait` returns a true value,
        the caller wants to stop: set `stopped`, and yield no more."""
        rate = self._rate
        if rate is None:
            yield ledgers
            return
        group_size = max(1, int(rate / _GROUPS_PER_SECOND))
        for start in range(0, len(ledgers), group_size):
            group = ledgers[start : start + group_size]
            now = self._now()
            next_start = now if self._next_start is None else max(now, self._next_start)
            if next_start > now and self._wait(next_start - now):
                self.stopped = True
                return
            self._next_start = next_start + len(group) / rate
            yield group
