"""ByteRate: the bytes that a repair reads or copies in a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ByteRate:
    """Limits the bytes that all threads together take; None = no limit. Thread-safe.

    >>> waits = []
    >>> rate = ByteRate(100.0, clock=lambda: 0.0, wait=waits.append)
    >>> rate.take(50); rate.take(10); waits
    [0.5]
    """

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._next_start = clock()
        self._lock = threading.Lock()

    def take(self, byte_count: int) -> None:
        """Wait until the bytes of earlier calls have had their time; then these may be sent."""
        if self._bytes_per_second is None:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._next_start)
            self._next_start = start + byte_count / self._bytes_per_second
        if start > now:
            self._wait(start - now)
