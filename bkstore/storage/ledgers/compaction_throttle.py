"""CompactionThrottle: how fast a compaction copies, and when it is given up.

Upstream's counterpart is `AbstractLogCompactor.Throttler`, a Guava `RateLimiter`: permits of up
to a second are saved while nobody takes any, and who takes more than there are makes the next one
wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from bkstore.ids import Int64Array

_SAVED = 1.0
"""Seconds of permits that are saved at most."""

_SLICE = 0.1
"""Seconds of permits that are taken at once: adds get their turn in between."""


def _wait(seconds: float) -> bool:
    if seconds > 0:
        time.sleep(seconds)
    return False


class CompactionThrottle:
    """Lets `rate` entries a second pass, or as many bytes with `by_bytes`.

    `wait` sleeps up to so many seconds, less when the compaction is to be given up, and returns
    whether it is; it is asked before each slice. Threads: one compaction at a time.

    >>> waits = []
    >>> throttle = CompactionThrottle(10, clock=lambda: 5.0, wait=waits.append)
    >>> throttle.take(12, 0), throttle.take(1, 0), waits
    (True, True, [0.0, 1.2000000000000002])
    """

    def __init__(
        self,
        rate: float = math.inf,
        *,
        by_bytes: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = _wait,
    ) -> None:
        self._rate = rate
        self._by_bytes = by_bytes
        self._clock = clock
        self._wait = wait
        self._free_at = clock()
        """When the permits that were taken have come in."""
        self.given_up = False
        """Whether the compaction is to end; it begins no other log then."""

    def take(self, entries: int, size: int) -> bool:
        """Wait until so much may pass; False where the compaction is to be given up."""
        now = self._clock()
        self._free_at = max(self._free_at, now - _SAVED)
        if self._wait(max(0.0, self._free_at - now)):
            self.given_up = True
            return False
        self._free_at += (size if self._by_bytes else entries) / self._rate
        return True

    def slices(self, sizes: Int64Array) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of records with these sizes, each when it may pass.

        Ends before the last record where the compaction is to be given up. A slice is what may
        pass in a tenth of a second, one record at least.
        """
        ends = sizes.cumsum()
        most = self._rate * _SLICE
        start, count = 0, int(sizes.size)
        while start < count:
            before = int(ends[start - 1]) if start else 0
            if most == math.inf:
                stop = count
            elif self._by_bytes:
                stop = int(ends.searchsorted(before + most, "right"))
            else:
                stop = start + int(most)
            stop = min(max(stop, start + 1), count)
            if not self.take(stop - start, int(ends[stop - 1]) - before):
                return
            yield start, stop
            start = stop


UNLIMITED = CompactionThrottle()
"""Never waits, and never gives up."""
