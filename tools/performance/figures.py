"""The figures of saved results, by row and case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.lab import Experiment, Row
from bkstore.lab.documents.document import Document
from bkstore.lab.documents.result_folder import read_folder
from tools.bench.cli import EXPERIMENT as BENCH
from tools.pipeline.experiment import EXPERIMENT as PIPELINE


class Origin(NamedTuple):
    """A row of a result, and the document that it comes from."""

    row: Row
    document: Document


def _read_origins(experiment: Experiment, folder: Path) -> Iterator[Origin]:
    for path, document in read_folder(experiment, folder):
        for row in document["rows"]:
            try:
                yield Origin(experiment.complete_row(row), document)
            except KeyError as error:
                message = f"{path}: no column {error} in {experiment.name}"
                raise InvalidArgument(message) from None


def figure_name(row: Row) -> str:
    """Return the name of a figure of the benchmark: row, case, and `what` unless it is a ratio."""
    return f"{row['row']}, {row['case']}{row['what'] and ': '}{row['what']}"


def _case_key(row: Row) -> tuple[str, str]:
    return row["row"], row["case"]


class Figures:
    """The rows of the benchmark at each scale, and those of the pipeline at each size."""

    def __init__(self, folder: Path) -> None:
        self.bench = list(_read_origins(BENCH, folder))
        self.pipeline = list(_read_origins(PIPELINE, folder))

    def of_rows(self, names: Iterable[str]) -> list[Origin]:
        """Return the figures of these rows, each case at the largest scale that was measured."""
        names, largest_scales = list(names), self._largest_scales()
        figures = [
            origin
            for origin in self.bench
            if origin.row["row"] in names
            and origin.document["scale"] == largest_scales[_case_key(origin.row)]
        ]
        return sorted(figures, key=lambda origin: names.index(origin.row["row"]))

    def _largest_scales(self) -> dict[tuple[str, str], float]:
        scales: dict[tuple[str, str], float] = {}
        for row, document in self.bench:
            scales[_case_key(row)] = max(document["scale"], scales.get(_case_key(row), 0))
        return scales

    def ratios(self, row: str, cases: str = ".*") -> dict[str, float]:
        """Return the ratios of a row's cases, by name; `cases` is a pattern of their names."""
        named_cases = self._named_cases(row, cases)
        return {name: case["ratio"] for name, case in named_cases if not case["what"]}

    def facts(self, row: str, what: str, cases: str = ".*") -> dict[str, Any]:
        """Return one of the other figures of a row's cases, by name."""
        named_cases = self._named_cases(row, cases)
        return {name: case["value"] for name, case in named_cases if case["what"] == what}

    def _named_cases(self, row: str, cases: str) -> Iterator[tuple[str, Row]]:
        for case_row, _ in self.of_rows([row]):
            if re.fullmatch(cases, case_row["case"]):
                yield figure_name(case_row), case_row

    def engines(
        self, numerator: str, denominator: str, steps: Iterable[str], entries: int
    ) -> dict[str, float]:
        """Return the ratio of two engines' wall seconds, by "pipeline, STEP", where both ran.
        `numerator` and `denominator` are the engines."""
        value_of = {
            (row["step"], row["engine"]): row["seconds"]
            for row, _ in self.pipeline
            if row["entries"] == entries and row["seconds"]
        }
        return {
            f"pipeline, {step}": value_of[step, numerator] / value_of[step, denominator]
            for step in steps
            if (step, numerator) in value_of and (step, denominator) in value_of
        }
