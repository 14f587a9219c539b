"""Several implementations ("sides") of the same work, timed against each other. A *round* runs
every side once. The order rotates from round to round, so that a busy minute hits all of them. A
*sample* is one side in one round, repeated until it lasts `MIN_SAMPLE_SECONDS`; it is measured in
CPU seconds of the thread and wall seconds per run."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bkstore.offline.reading.freed_memory import keep_freed_memory

T = TypeVar("T")

MIN_SAMPLE_SECONDS = 0.02
"""The least duration of a sample; shorter work is repeated within its sample."""

_MAX_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class TimedSide:
    """One implementation of the work. `run` is timed; `setup`, if set, makes its argument, untimed.
    A side with `setup` runs once per sample. `teardown` disposes of the argument, untimed."""

    name: str
    run: Callable[..., object]
    setup: Callable[[], object] | None = None
    teardown: Callable[[Any], object] | None = None


@dataclass(slots=True)
class Samples:
    """The samples of a side: per round the thread's CPU seconds and wall seconds of one run."""

    side: TimedSide
    repeats: int = 1
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def run_sample(self, record: bool = True) -> float:
        """Run one sample, which is `repeats` runs of the side's work, and return the CPU seconds of
        one run. Times are recorded unless `record` is false."""
        side = self.side
        arguments = () if side.setup is None else (side.setup(),)
        result = None  # kept until the clock is read: freeing it is not part of the work
        gc.collect()
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(self.repeats):
            result = side.run(*arguments)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        del result
        if side.teardown is not None:
            side.teardown(*arguments)
        if record:
            self.cpu.append(cpu / self.repeats)
            self.wall.append(wall / self.repeats)
        return cpu / self.repeats

    def warm_up(self, min_seconds: float) -> None:
        """Run once, unrecorded, and choose how often each sample repeats the work."""
        seconds = self.run_sample(record=False)
        if self.side.setup is None:
            self.repeats = max(1, min(_MAX_REPEATS, round(min_seconds / max(seconds, 1e-9))))

    @property
    def seconds(self) -> float:
        """The median CPU seconds of one run."""
        return statistics.median(self.cpu)

    @property
    def wall_seconds(self) -> float:
        """The median wall seconds of one run."""
        return statistics.median(self.wall)


def rotate(sides: Sequence[T], round_number: int) -> list[T]:
    """Return the order of the sides in a round: each round starts with another one."""
    first = round_number % len(sides)
    return [*sides[first:], *sides[:first]]


def run_samples(
    sides: Sequence[TimedSide], rounds: int, min_seconds: float = MIN_SAMPLE_SECONDS
) -> list[Samples]:
    """Return the samples of each side (one of several implementations of the same work). In each
    round every side runs one sample, in an order that rotates from round to round. A sample repeats
    short work until it lasts `min_seconds`."""
    samples = [Samples(side) for side in sides]
    with _settled_memory():
        for side_samples in samples:
            side_samples.warm_up(min_seconds)
        for round_number in range(rounds):
            for side_samples in rotate(samples, round_number):
                side_samples.run_sample()
    return samples


@contextmanager
def _settled_memory() -> Iterator[None]:
    """Put the allocator and the garbage collector into the state of a long-running process. Once a
    large block was freed, glibc keeps later ones, so that page faults do not depend on what ran
    before. The collector stays on, but does not traverse the objects that existed before."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
