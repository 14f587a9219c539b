"""The parts of an experiment: columns, panels, a function that measures, one that summarizes."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bkstore.lab.progress import StepProgress

Row = dict[str, Any]  # a row of the result: values by column name; a missing value is None
Rows = Sequence[Row]

DataSource = Literal["dump", "trace"]
"""The user's own data that an experiment can measure: a `--dump` or a `--trace`."""

Kind = Literal["given", "count", "measured", "told", "kept"]
"""The kind of a column: `given` identifies the row, `count` is reproducible from the seed,
`measured` varies from run to run, `told` is only shown in tables, `kept` only in the JSON."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result. The `given` columns together identify a row. `label` and `unit` are
    shown at the axes of pictures and in the headers of tables."""

    name: str
    label: str
    unit: str = ""
    kind: Kind = "measured"

    @property
    def title(self) -> str:
        """The label with its unit."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture: column `y` over column `x`, a series per value of `series_column`.
    Numbers in `x` are drawn as lines, text as bars. `where` selects rows by column values; a tuple
    lists the values allowed. `tick_column` is a column whose values are ticks above the bars. `log`
    names the logarithmic axes, which omit values not above 0. `label` is the x axis's title. Rows
    that have a value of `leave_out` are not shown, and none if there are fewer than `min_rows`.
    """

    title: str
    x: str
    y: str
    series_column: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    tick_column: str | None = None
    log: Literal["", "x", "y", "xy"] = ""
    label: str = ""
    leave_out: Mapping[str, Any] = field(default_factory=dict)
    min_rows: int = 1

    def rows(self, rows: Rows) -> list[Row]:
        """Return the rows that the panel shows: those that have an x and a y value, have a value of
        `where` in each of its columns, and no value of `leave_out` in any of its columns; none if
        they are fewer than `min_rows`."""
        shown = [
            row
            for row in rows
            if row.get(self.x) is not None
            and row.get(self.y) is not None
            and all(_is_one_of(row[column], allowed) for column, allowed in self.where.items())
            and not any(
                _is_one_of(row[column], excluded) for column, excluded in self.leave_out.items()
            )
        ]
        return shown if len(shown) >= self.min_rows else []


def merge_orders(sequences: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the values of all sequences, each once: one that an earlier sequence lacks comes after
    the value that precedes it in its own.

    >>> merge_orders([["p50", "max"], ["p50", "p99", "max"]])
    ['p50', 'p99', 'max']
    """
    merged: list[Any] = []
    for sequence in sequences:
        position = 0
        for value in sequence:
            if value not in merged:
                merged.insert(position, value)
            position = merged.index(value) + 1
    return merged


def _is_one_of(value: Any, allowed: Any) -> bool:
    return value in allowed if isinstance(allowed, tuple) else bool(value == allowed)


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs for generating data: an empty directory, a scale, a seed. `import_optional` adds
    the libraries that are not installed to `missing_libraries`."""

    directory: Path
    scale: float = 1.0
    seed: int = 20260801
    missing_libraries: list[str] = field(default_factory=list)

    def scaled(self, count: int, minimum: int = 60) -> int:
        """Return `count` multiplied by the scale, but at least `minimum`."""
        return max(round(count * self.scale), minimum)

    def import_optional(self, name: str) -> Any | None:
        """Import a library; if it is absent, add it to `missing_libraries` and return None."""
        try:
            return importlib.import_module(name)
        except ImportError:
            if name not in self.missing_libraries:
                self.missing_libraries.append(name)
            return None


@dataclass(frozen=True, slots=True)
class LabRun(Context):
    """The inputs of a measurement: those of `Context`, rounds, a dump or a trace if given.
    `options` has the values of the experiment's own command-line options."""

    rounds: int = 5
    dump: Path | None = None
    trace: Path | None = None
    options: Namespace = field(default_factory=Namespace)
    progress: StepProgress = field(default_factory=StepProgress)

    @property
    def min_sample_seconds(self) -> float:
        """The minimal CPU seconds of a sample: for `bkstore.lab.measuring.timing.run_samples`."""
        return 0.005 * min(self.scale, 1)

    def expect_steps(self, steps: int) -> None:
        """Set the number of calls of `report_progress` that follow, so that each call can show the
        share that is done and the time left."""
        self.progress.expect(steps)

    def report_progress(self, step: str) -> None:
        """Report on stderr that a step of the measurement begins."""
        self.progress.begin(step)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question, and how it is answered.

    `measure` yields rows. `summarize` returns the findings as sentences that depend on the rows
    alone, so that they can be recomputed from saved rows. `method` and `data` describe both to the
    reader.

    `data_sources` names the user's own data that it can measure; options for other data are
    refused. `add_options` adds command-line options. `table_title` returns the title of the table
    that a row belongs to; with `tables_by_row` the terminal has those, else one for each panel.
    `group_columns` names the given columns that identify rows measured together: measured again,
    they replace the older ones in a folder of results; without `group_columns` all rows do.
    `compared_by` names columns of texts; with --compare a picture has the earlier rows too, and
    there these texts end with "before". `command` is the command line that runs the experiment,
    ``bkstore lab NAME`` if it is empty.
    """

    name: str
    question: str
    method: str
    data: str
    columns: tuple[ResultColumn, ...]
    panels: tuple[Panel, ...]
    measure: Callable[[LabRun], Iterable[Row]]
    summarize: Callable[[Rows], list[str]]
    data_sources: tuple[DataSource, ...] = ()
    add_options: Callable[[ArgumentParser], None] | None = None
    table_title: Callable[[Row], str] = lambda _: ""
    tables_by_row: bool = False
    group_columns: tuple[str, ...] = ()
    command: str = ""
    compared_by: tuple[str, ...] = ()

    def column(self, name: str) -> ResultColumn:
        """Return a column by its name; raise `KeyError` if there is none of this name."""
        return {column.name: column for column in self.columns}[name]

    @property
    def command_line(self) -> str:
        """The command line that runs the experiment, without options."""
        return self.command or f"bkstore lab {self.name}"

    def key(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a row: the values of the given columns."""
        return tuple(row[column.name] for column in columns_of_kind(self.columns, "given"))

    def add_earlier_rows(self, rows: Rows, earlier_rows: Rows) -> list[Row]:
        """Return the rows, then the earlier ones with the texts of `compared_by` marked."""
        marked = [
            {**row, **{name: f"{row[name]}, before" for name in self.compared_by if row.get(name)}}
            for row in earlier_rows
        ]
        return [*rows, *marked]

    def complete_row(self, row: Row) -> Row:
        """Return a row with all columns in order; raise `KeyError` for an undeclared column."""
        for name in row:
            self.column(name)
        return {column.name: row.get(column.name) for column in self.columns}


def columns_of_kind(columns: Iterable[ResultColumn], *kinds: Kind) -> list[ResultColumn]:
    """Return the columns of any of these kinds."""
    return [column for column in columns if column.kind in kinds]
