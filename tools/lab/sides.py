"""Several forms of the same work, timed beside each other.

A *round* runs every side once, the order turning from round to round, so that a busy minute hits
all of them. A *sample* is one side in one round, repeated until it lasts `SHORTEST` seconds, in
CPU seconds of the thread and wall seconds per run.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bkstore.offline.reading.kept_memory import keep_freed_memory

SHORTEST = 0.02
"""Seconds a sample lasts at least; a shorter side is repeated within its sample."""

_MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Side:
    """One form of the work. `run` is timed; `fresh`, if given, makes its argument, untimed.

    A side with `fresh` runs once a sample: it uses up what it is given. `done` takes the
    argument away afterwards, untimed.
    """

    name: str
    run: Callable[..., object]
    fresh: Callable[[], object] | None = None
    done: Callable[[Any], object] | None = None


@dataclass(slots=True)
class Samples:
    """The samples of a side: CPU seconds of the thread and wall seconds of one run, a round."""

    side: Side
    repeats: int = 1
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def take(self, keep: bool = True) -> float:
        """Run one sample; return the CPU seconds of one run."""
        side = self.side
        given = () if side.fresh is None else (side.fresh(),)
        result = None  # held until the clock is read: dropping it is not part of the work
        gc.collect()
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(self.repeats):
            result = side.run(*given)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        del result
        if side.done is not None:
            side.done(*given)
        if keep:
            self.cpu.append(cpu / self.repeats)
            self.wall.append(wall / self.repeats)
        return cpu / self.repeats

    def warm_up(self, shortest: float) -> None:
        """Run once unrecorded and choose the repeats."""
        once = self.take(keep=False)
        if self.side.fresh is None:
            self.repeats = max(1, min(_MOST_REPEATS, round(shortest / max(once, 1e-9))))

    @property
    def seconds(self) -> float:
        """The median CPU seconds of one run."""
        return statistics.median(self.cpu)

    @property
    def wall_seconds(self) -> float:
        """The median wall seconds of one run."""
        return statistics.median(self.wall)


def sample(sides: Sequence[Side], rounds: int, shortest: float = SHORTEST) -> list[Samples]:
    """Run sides beside each other, in turning order, and return the samples of each."""
    taken = [Samples(side) for side in sides]
    with _settled():
        for side in taken:
            side.warm_up(shortest)
        for nth in range(rounds):
            turn = nth % len(taken)
            for side in taken[turn:] + taken[:turn]:
                side.take()
    return taken


@contextmanager
def _settled() -> Iterator[None]:
    """Bring allocator and garbage collector into the state of a process that runs for long.

    Freeing one large block makes glibc keep later ones instead of returning them to the
    system, so that no side pays page faults that depend on what ran before. The collector
    stays on, but does not walk the objects that were there before.
    """
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
