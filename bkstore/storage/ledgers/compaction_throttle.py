"""CompactionThrottle: how fast a compaction copies, and when it is given up.

BookKeeper's counterpart is `AbstractLogCompactor.Throttler`, a Guava `RateLimiter`: it saves up to
a second's permits while idle; a caller that takes more than there are makes the next one wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from bkstore.ids import Int64Array

_MAX_SAVED_SECONDS = 1.0
"""Idle time for which permits are saved, at most."""

_SLICE_SECONDS = 0.1
"""Permits taken at once, as the time in which they accrue; adds run between two slices."""


def _sleep(seconds: float) -> bool:
    """Sleep; return False: the compaction goes on."""
    if seconds > 0:
        time.sleep(seconds)
    return False


class CompactionThrottle:
    """Lets `rate` entries a second pass, or `rate` bytes with `by_bytes`.

    `wait` is called before each slice. It sleeps up to the given seconds, less if the compaction
    is to be given up, and returns whether it is. Threads: one compaction at a time.

    >>> waits = []
    >>> throttle = CompactionThrottle(10, clock=lambda: 5.0, wait=waits.append)
    >>> throttle.acquire(12, 0), throttle.acquire(1, 0), waits
    (True, True, [0.0, 1.2000000000000002])
    """

    def __init__(
        self,
        rate: float = math.inf,
        *,
        by_bytes: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool | None] = _sleep,
    ) -> None:
        self._rate = rate
        self._by_bytes = by_bytes
        self._clock = clock
        self._sleep = wait
        self._free_at = clock()
        """The time by which all permits that were taken have accrued."""
        self.is_given_up = False
        """Whether the compaction is to end; no other log is started then."""

    def acquire(self, entry_count: int, size: int) -> bool:
        """Wait until that many entries and bytes may pass; return False if the compaction is to be
        given up. They pass at once if all before them are paid off, and delay those after them."""
        now = self._clock()
        # Idle time saves permits, but no more than those of `_MAX_SAVED_SECONDS`.
        self._free_at = max(self._free_at, now - _MAX_SAVED_SECONDS)
        if self._sleep(max(0.0, self._free_at - now)):  # woken early, to give up
            self.is_given_up = True
            return False
        self._free_at += (size if self._by_bytes else entry_count) / self._rate
        return True

    def throttled_slices(self, sizes: Int64Array) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) slices of records with these sizes, of a tenth of a second and at
        least one record, each when it may pass; end early if the compaction is to be given up."""
        end_offsets = sizes.cumsum()
        permits_per_slice = self._rate * _SLICE_SECONDS
        start, count = 0, int(sizes.size)
        while start < count:
            # A slice has the records of `permits_per_slice` bytes or entries.
            passed_bytes = int(end_offsets[start - 1]) if start else 0
            if permits_per_slice == math.inf:
                stop = count
            elif self._by_bytes:
                stop = int(end_offsets.searchsorted(passed_bytes + permits_per_slice, "right"))
            else:
                stop = start + int(permits_per_slice)
            stop = min(max(stop, start + 1), count)
            if not self.acquire(stop - start, int(end_offsets[stop - 1]) - passed_bytes):
                return
            yield start, stop
            start = stop


UNLIMITED = CompactionThrottle()
"""Never waits and never gives up."""
