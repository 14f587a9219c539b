"""Timing two or more forms of the same work side by side.

A *row* of the table has one or more *cases*; a case has *sides*: ours, and one or more
baselines, of which the fastest counts. A *round* runs every side once, the order turning from
round to round, so that a busy minute hits all of them. A *sample* is one side in one round,
repeated until it lasts `SHORTEST` seconds, in CPU seconds of the thread and wall seconds per
run. Judged by the ratio of median CPU times; wall times stand beside them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Case",
    "Context",
    "Fact",
    "Figures",
    "Row",
    "Samples",
    "Side",
    "measure",
    "run_row",
    "sample",
]

SHORTEST = 0.02
"""Seconds a sample lasts at least; a shorter side is repeated within its sample."""

MOST_REPEATS = 1000

_LARGE = 31 << 20  # just below the largest threshold that glibc's malloc learns


@dataclass(frozen=True, slots=True)
class Context:
    """What a row needs to make its data: an empty directory, a scale factor, a seed."""

    directory: Path
    size: float = 1.0
    seed: int = 20260801

    def scaled(self, count: int, least: int = 60) -> int:
        """Return `count` times the scale factor, at least `least`."""
        return max(round(count * self.size), least)


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


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that is not a time: bytes, counts. `holds` is None if nothing is demanded."""

    name: str
    value: float | int | str
    target: str | None = None
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Sides to compare on one data set.

    `items` is the number of entries one run handles, `shape` describes the data. `kind` says
    what the ratio is: "speedup" is baseline / ours and must reach `limit`, "cost" is ours /
    baseline and must not pass it. Without a `limit` the case is informative.
    """

    name: str
    items: int
    shape: str
    ours: Side
    baselines: tuple[Side, ...]
    limit: float | None = None
    kind: Literal["speedup", "cost"] = "speedup"
    facts: Callable[[], list[Fact]] = list

    def ratio(self, ours: float, baseline: float) -> float:
        """Return the ratio of two times."""
        above, below = (baseline, ours) if self.kind == "speedup" else (ours, baseline)
        return above / max(below, 1e-12)

    def holds(self, ratio: float) -> bool | None:
        """Return whether the ratio is within the limit, None without one."""
        if self.limit is None:
            return None
        return ratio >= self.limit if self.kind == "speedup" else ratio <= self.limit

    @property
    def target(self) -> str | None:
        """The limit as text."""
        sign = ">=" if self.kind == "speedup" else "<="
        return None if self.limit is None else f"{sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figures:
    """A case without sides: figures that are no ratio of two times. `facts` is called once."""

    name: str
    items: int
    shape: str
    facts: Callable[[], list[Fact]]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: its name, what is measured how, and the maker of its cases.

    Cases are taken one at a time, so that a maker may build a large data set for each. One that
    is `long` runs only when it is asked for.
    """

    name: str
    title: str
    method: str
    cases: Callable[[Context], AbstractContextManager[Iterable[Case | Figures]]]
    long: bool = False


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
            self.repeats = max(1, min(MOST_REPEATS, round(shortest / max(once, 1e-9))))

    @property
    def seconds(self) -> float:
        """The median CPU seconds of one run."""
        return statistics.median(self.cpu)

    def document(self, role: str, items: int) -> dict[str, Any]:
        """Return the side as it stands in the JSON."""
        cpu = self.seconds
        return {
            "name": self.side.name,
            "role": role,
            "repeats": self.repeats,
            "cpu_seconds": self.cpu,
            "wall_seconds": self.wall,
            "cpu_median": cpu,
            "wall_median": statistics.median(self.wall),
            "cpu_ns_per_item": cpu / items * 1e9,
        }


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


def measure(case: Case, rounds: int, shortest: float = SHORTEST) -> dict[str, Any]:
    """Run a case and return its part of the JSON document: samples, ratio, verdict."""
    ours, *others = sides = sample((case.ours, *case.baselines), rounds, shortest)
    baseline = min(others, key=lambda side: side.seconds)
    ratio = case.ratio(ours.seconds, baseline.seconds)
    by_round = [case.ratio(a, b) for a, b in zip(ours.cpu, baseline.cpu)]
    roles = {id(ours): "ours", id(baseline): "baseline"}
    return {
        "name": case.name,
        "items": case.items,
        "shape": case.shape,
        "sides": [side.document(roles.get(id(side), "other"), case.items) for side in sides],
        "ratio": ratio,
        "ratio_wall": case.ratio(statistics.median(ours.wall), statistics.median(baseline.wall)),
        "ratio_lowest": min(by_round),
        "ratio_highest": max(by_round),
        "ratio_means": "baseline / ours" if case.kind == "speedup" else "ours / baseline",
        "target": case.target,
        "holds": case.holds(ratio),
        "facts": [asdict(fact) for fact in case.facts()],
    }


@contextmanager
def _settled() -> Iterator[None]:
    """Bring allocator and garbage collector into the state of a process that runs for long.

    Freeing one large block makes glibc keep later ones instead of returning them to the
    system, so that no side pays page faults that depend on what ran before. The collector
    stays on, but does not walk the objects that were there before.
    """
    bytearray(_LARGE)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def run_row(row: Row, context: Context, rounds: int) -> Iterator[dict[str, Any]]:
    """Set a row's data up and yield the document of each case; the data go afterwards."""
    shortest = SHORTEST * min(context.size, 1)
    with row.cases(context) as cases:
        for case in cases:
            if isinstance(case, Figures):
                yield _figures(case)
            else:
                yield measure(case, rounds, shortest)


def _figures(case: Figures) -> dict[str, Any]:
    """Return the document of a case without sides."""
    return {
        "name": case.name,
        "items": case.items,
        "shape": case.shape,
        "sides": [],
        "facts": [asdict(fact) for fact in case.facts()],
    }
