"""How fast a compaction copies, and how it is given up: by hand, with a clock of its own."""

from __future__ import annotations

import numpy as np
import pytest

from bkstore.storage.ledgers.compaction_throttle import UNLIMITED, CompactionThrottle


class Clock:
    """Time that passes only while somebody waits; `stop_at` is when waiting is ended."""

    def __init__(self, stop_at: float = 1e9) -> None:
        self.now = 100.0
        self.stop_at = stop_at
        self.waits: list[float] = []

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def wait(self, seconds: float) -> bool:
        """Let time pass, up to the end of waiting."""
        self.waits.append(seconds)
        self.now = min(self.now + seconds, max(self.stop_at, self.now))
        return self.now >= self.stop_at


def _sizes(*sizes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sizes, np.int64)


def test_slices_are_what_passes_in_a_tenth_of_a_second() -> None:
    """50 entries a second pass five at a time; each slice waits for the one before it."""
    clock = Clock()
    throttle = CompactionThrottle(50, clock=clock, wait=clock.wait)

    assert [(0, 5), (5, 10), (10, 12)] == list(throttle.throttled_slices(np.full(12, 1000)))
    assert [0, 0.1, 0.1] == pytest.approx(clock.waits)


def test_bytes_are_counted_where_they_are_the_limit() -> None:
    """1,000 bytes a second pass 100 at a time; a record larger than that passes alone, and what
    follows waits as long as it is due."""
    clock = Clock()
    throttle = CompactionThrottle(1000, by_bytes=True, clock=clock, wait=clock.wait)

    assert [(0, 2), (2, 3), (3, 5)] == list(throttle.throttled_slices(_sizes(60, 40, 500, 30, 30)))
    assert [0, 0.1, 0.5] == pytest.approx(clock.waits)


def test_a_second_of_permits_is_saved_at_most() -> None:
    """After a pause of ten seconds at 10 entries a second, ten pass without waiting, and the next
    waits for a tenth."""
    clock = Clock()
    throttle = CompactionThrottle(10, clock=clock, wait=clock.wait)
    throttle.acquire(1, 0)
    clock.now += 10
    for _ in range(12):
        assert throttle.acquire(1, 0)

    assert [0] * 12 + [0.1] == pytest.approx(clock.waits)


def test_what_is_given_up_ends_before_the_next_slice() -> None:
    """Waiting that is ended gives the compaction up: no slice comes any more."""
    clock = Clock(stop_at=100.15)
    throttle = CompactionThrottle(50, clock=clock, wait=clock.wait)

    assert [(0, 5), (5, 10)] == list(throttle.throttled_slices(np.full(100, 10)))
    assert throttle.is_given_up
    assert [] == list(throttle.throttled_slices(np.full(100, 10)))


def test_without_a_limit_all_passes_at_once() -> None:
    """A compaction that somebody asked for by a call takes whole batches."""
    assert [(0, 70_000)] == list(UNLIMITED.throttled_slices(np.full(70_000, 100)))
    assert not UNLIMITED.is_given_up
