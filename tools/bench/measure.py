"""What a row of the benchmark is: sides beside each other, a ratio, a verdict.

A *row* has one or more *cases*; a case has *sides*: ours, and one or more baselines, of which the
fastest counts. Judged by the ratio of median CPU times; wall times stand beside them. What takes
the samples is `tools.lab.sides`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from tools.lab.experiment import Context, Row as Values
from tools.lab.sides import MIN_SAMPLE_SECONDS, Samples, Side, run_samples

__all__ = ["Case", "Context", "Fact", "Figures", "Row", "Side", "measure", "run_row"]


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
    """A row of the benchmark: its name, what is measured how, and the maker of its cases.

    Cases are taken one at a time, so that a maker may build a large data set for each. One that
    is `long` runs only when it is asked for.
    """

    name: str
    title: str
    method: str
    cases: Callable[[Context], AbstractContextManager[Iterable[Case | Figures]]]
    long: bool = False


def run_row(row: Row, context: Context, rounds: int) -> Iterator[Values]:
    """Set a row's data up and yield the values of each case and fact; the data go afterwards."""
    shortest = MIN_SAMPLE_SECONDS * min(context.size, 1)
    with row.cases(context) as cases:
        for case in cases:
            key = {"row": row.name, "case": case.name, "items": case.items, "shape": case.shape}
            if isinstance(case, Case):
                yield {**key, "what": "", **measure(case, rounds, shortest)}
            for fact in case.facts():
                told = {"value": fact.value, "target": fact.target, "holds": fact.holds}
                yield {**key, "what": fact.name, **told}


def measure(case: Case, rounds: int, shortest: float = MIN_SAMPLE_SECONDS) -> Values:
    """Run the sides of a case and return names, medians, ratio, verdict and samples."""
    ours, *others = sides = run_samples((case.ours, *case.baselines), rounds, shortest)
    baseline = min(others, key=lambda side: side.seconds)
    ratio = case.ratio(ours.seconds, baseline.seconds)
    by_round = [case.ratio(a, b) for a, b in zip(ours.cpu, baseline.cpu)]
    return {
        "ours": ours.side.name,
        "ours_ms": ours.seconds * 1e3,
        "baseline": baseline.side.name,
        "baseline_ms": baseline.seconds * 1e3,
        "ratio": ratio,
        "spread": f"{min(by_round):.2f} .. {max(by_round):.2f}",
        "wall": case.ratio(ours.wall_seconds, baseline.wall_seconds),
        "is": "baseline / ours" if case.kind == "speedup" else "ours / baseline",
        "target": case.target,
        "holds": case.holds(ratio),
        "samples": [_samples(side) for side in sides],
    }


def _samples(side: Samples) -> dict[str, Any]:
    return {
        "name": side.side.name,
        "repeats": side.repeats,
        "cpu_seconds": side.cpu,
        "wall_seconds": side.wall,
    }
