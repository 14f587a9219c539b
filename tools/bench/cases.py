"""Rows of the benchmark: sides to compare, their ratio, and the verdict.

A *row* has one or more *cases*; a case has *sides*: ours, and one or more baselines, of which the
fastest counts. The verdict depends on the ratio of median CPU times.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from bkstore.lab.experiment import Context, Row as Values
from bkstore.lab.measuring.timing import MIN_SAMPLE_SECONDS, TimedSide, run_samples

__all__ = ["BenchmarkRow", "Case", "Cases", "Context", "Fact", "FactCase", "TimedSide", "run_row"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure other than the ratio, such as bytes or counts. `holds` is None without a target."""

    name: str
    value: float | int | str
    target: str | None = None
    holds: bool | None = None

    @classmethod
    def yes_or_no(cls, name: str, holds: bool) -> Fact:
        """Return a fact with the value "yes" or "no", and the target "yes"."""
        return cls(name, "yes" if holds else "no", target="yes", holds=holds)


@dataclass(frozen=True, slots=True)
class Case:
    """Sides to compare on one data set.

    `items` is the number of entries that one run handles, `shape` describes the data. `kind`
    defines the ratio: "speedup" is baseline / ours and must be at least `limit`, "cost" is ours /
    baseline and must be at most `limit`. Without a `limit` the case is informative.
    """

    name: str
    items: int
    shape: str
    ours: TimedSide
    baselines: tuple[TimedSide, ...]
    limit: float | None = None
    kind: Literal["speedup", "cost"] = "speedup"
    facts: Callable[[], list[Fact]] = list

    def ratio(self, ours: float, baseline: float) -> float:
        """Return the ratio of two times, by the kind of the case."""
        numerator, denominator = (baseline, ours) if self.kind == "speedup" else (ours, baseline)
        return numerator / max(denominator, 1e-12)

    def holds(self, ratio: float) -> bool | None:
        """Return whether the ratio meets the limit, or None without a limit."""
        if self.limit is None:
            return None
        return ratio >= self.limit if self.kind == "speedup" else ratio <= self.limit

    @property
    def target(self) -> str | None:
        """The limit as text."""
        sign = ">=" if self.kind == "speedup" else "<="
        return None if self.limit is None else f"{sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class FactCase:
    """A case without sides: it has figures only, which one call of `facts` measures."""

    name: str
    items: int
    shape: str
    facts: Callable[[], list[Fact]]


Cases = Generator[Case | FactCase, None, None]
"""The cases of a row; the data of one is deleted when the next one is asked for."""


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """A row of the benchmark: its name, title, method, and a function that yields its cases.

    `long` rows run only on request.
    """

    name: str
    title: str
    method: str
    cases: Callable[[Context], Cases]
    long: bool = False


def run_row(row: BenchmarkRow, context: Context, rounds: int) -> Iterator[Values]:
    """Set up a row's data, yield the values of each case and fact, and delete the data."""
    min_seconds = MIN_SAMPLE_SECONDS * min(context.scale, 1)
    with closing(row.cases(context)) as cases:
        for case in cases:
            key = {"row": row.name, "case": case.name, "items": case.items, "shape": case.shape}
            if isinstance(case, Case):
                yield {**key, "what": "", **_measure_case(case, rounds, min_seconds)}
            for fact in case.facts():
                figures = {"value": fact.value, "target": fact.target, "holds": fact.holds}
                yield {**key, "what": fact.name, **figures}


def _measure_case(case: Case, rounds: int, min_seconds: float) -> Values:
    """Run the sides of a case and return names, medians, ratio, verdict and samples."""
    ours, *baselines = all_samples = run_samples((case.ours, *case.baselines), rounds, min_seconds)
    baseline = min(baselines, key=lambda samples: samples.seconds)
    ratio = case.ratio(ours.seconds, baseline.seconds)
    ratios_by_round = list(map(case.ratio, ours.cpu, baseline.cpu))
    return {
        "ours": ours.side.name,
        "ours_ms": ours.seconds * 1e3,
        "baseline": baseline.side.name,
        "baseline_ms": baseline.seconds * 1e3,
        "ratio": ratio,
        "spread": f"{min(ratios_by_round):.2f} .. {max(ratios_by_round):.2f}",
        "wall": case.ratio(ours.wall_seconds, baseline.wall_seconds),
        "is": "baseline / ours" if case.kind == "speedup" else "ours / baseline",
        "target": case.target,
        "holds": case.holds(ratio),
        "samples": [
            {
                "name": samples.side.name,
                "repeats": samples.repeats,
                "cpu_seconds": samples.cpu,
                "wall_seconds": samples.wall,
            }
            for samples in all_samples
        ],
    }
