"""Figures of kept results, found by what they are of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.errors import InvalidArgument
from tools.bench.cli import EXPERIMENT as BENCH
from tools.lab import Experiment, Row
from tools.lab.document import Document, read_folder
from tools.pipeline.experiment import EXPERIMENT as PIPELINE


class Origin(NamedTuple):
    """A row of a result, and the result that it is from."""

    row: Row
    document: Document


def _origins(experiment: Experiment, folder: Path) -> Iterator[Origin]:
    for path, document in read_folder(experiment, folder):
        for row in document["rows"]:
            try:
                yield Origin(experiment.whole(row), document)
            except KeyError as unknown:
                said = f"{path}: no column {unknown} in {experiment.name}"
                raise InvalidArgument(said) from None


def named(row: Row) -> str:
    """Return what a figure of the benchmark is called: row, case, and what if it is no ratio."""
    return f"{row['row']}, {row['case']}{row['what'] and ': '}{row['what']}"


def _case(row: Row) -> tuple[str, str]:
    return row["row"], row["case"]


class Figures:
    """The rows of the benchmark, of each scale, and those of the pipeline, of each size."""

    def __init__(self, folder: Path) -> None:
        self.bench = list(_origins(BENCH, folder))
        self.pipeline = list(_origins(PIPELINE, folder))

    def of_rows(self, names: Iterable[str]) -> list[Origin]:
        """Return the figures of these rows, each case at the largest scale that there is."""
        names, largest = list(names), self._largest()
        found = [
            each
            for each in self.bench
            if each.row["row"] in names and each.document["scale"] == largest[_case(each.row)]
        ]
        return sorted(found, key=lambda each: names.index(each.row["row"]))

    def _largest(self) -> dict[tuple[str, str], float]:
        largest: dict[tuple[str, str], float] = {}
        for row, document in self.bench:
            largest[_case(row)] = max(document["scale"], largest.get(_case(row), 0))
        return largest

    def ratios(self, row: str, cases: str = ".*") -> dict[str, float]:
        """Return the ratios of a row's cases (a pattern of their names), as `named` names them."""
        return {key: each["ratio"] for key, each in self._cases(row, cases) if not each["what"]}

    def facts(self, row: str, what: str, cases: str = ".*") -> dict[str, Any]:
        """Return one of the other figures of a row's cases."""
        return {key: each["value"] for key, each in self._cases(row, cases) if each["what"] == what}

    def _cases(self, row: str, cases: str) -> Iterator[tuple[str, Row]]:
        for each, _ in self.of_rows([row]):
            if re.fullmatch(cases, each["case"]):
                yield named(each), each

    def engines(
        self, over: str, under: str, steps: Iterable[str], entries: int, column: str = "seconds"
    ) -> dict[str, float]:
        """Return by step how many times as much one engine takes as another, where both ran.

        Names are "pipeline, STEP".
        """
        by = {
            (row["step"], row["engine"]): row[column]
            for row, _ in self.pipeline
            if row["entries"] == entries and row[column]
        }
        return {
            f"pipeline, {step}": by[step, over] / by[step, under]
            for step in steps
            if (step, over) in by and (step, under) in by
        }
