"""What an experiment is: columns, panels, what measures, and what says what was found."""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Row = dict[str, Any]
"""A row of the result: values by the names of columns; one that is absent is None."""

Rows = Sequence[Row]

Taken = Literal["dump", "trace"]
"""Data of one's own that an experiment may take: by `--dump`, by `--trace`."""

Kind = Literal["given", "count", "measured", "told", "kept"]
"""What a column's values are: what was asked for; what the same seed gives again; what is measured;
what stands in tables and is not compared; what only the JSON has."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result. `given` columns together name a row.

    `label` and `unit` stand at the axes of pictures and in the heads of tables.
    """

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
    """A part of the picture: column `y` over column `x`, a series for each value of column `by`.

    Numbers in `x` make lines, words make bars. `where` chooses rows by the values of columns, a
    tuple being any of them. `high` is a column whose values are ticks above the bars. `log` names
    the logarithmic axes, on which what is not above 0 has no place and is left out. `label` stands
    at the x axis in place of the column's title.
    """

    title: str
    x: str
    y: str
    by: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    high: str | None = None
    log: Literal["", "x", "y", "xy"] = ""
    label: str = ""

    def rows(self, rows: Rows) -> list[Row]:
        """Return the rows that the panel shows: chosen, and with a place and a value."""
        return [
            row
            for row in rows
            if row.get(self.x) is not None
            and row.get(self.y) is not None
            and all(
                row[name] in wanted if isinstance(wanted, tuple) else row[name] == wanted
                for name, wanted in self.where.items()
            )
        ]


@dataclass(frozen=True, slots=True)
class Context:
    """What data are made with: an empty directory, a scale, a seed.

    `scaled` applies the scale. `absent` fills with the peers that are not installed.
    """

    directory: Path
    size: float = 1.0
    seed: int = 20260801
    absent: list[str] = field(default_factory=list)

    def scaled(self, count: int, least: int = 60) -> int:
        """Return `count` times the scale, at least `least`."""
        return max(round(count * self.size), least)

    def peer(self, name: str) -> Any | None:
        """Return the module of a library to compare with, None (and noted) where it is absent."""
        try:
            return importlib.import_module(name)
        except ImportError:
            if name not in self.absent:
                self.absent.append(name)
            return None


@dataclass(frozen=True, slots=True)
class Run(Context):
    """What an experiment measures with: the same, rounds, a dump and a trace if they are given.

    `options` has what the experiment's own options say.
    """

    rounds: int = 5
    dump: Path | None = None
    trace: Path | None = None
    options: Namespace = field(default_factory=Namespace)

    @property
    def shortest(self) -> float:
        """How many CPU seconds a sample lasts at least: for `tools.lab.sides.sample`."""
        return 0.005 * min(self.size, 1)

    def tell(self, what: str) -> None:
        """Say on stderr what is measured next."""
        print(f"{what} ...", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A question, and how it is answered.

    `measure` yields rows, `found` makes sentences of them, and nothing else, so that a saved
    result says the same. `method` says what is measured how; a line of `data` says what data.

    `takes` names the data of one's own that it measures; what it does not name is refused.
    `add_options` adds options of its own. `parted` says in which table a row stands, by the
    table's title. `unit` names the given columns of what is measured together: such rows, once
    measured again, replace the older ones in a folder of results; without them all rows do.
    """

    name: str
    question: str
    method: str
    data: str
    columns: tuple[Column, ...]
    panels: tuple[Panel, ...]
    measure: Callable[[Run], Iterable[Row]]
    found: Callable[[Rows], list[str]]
    takes: tuple[Taken, ...] = ()
    add_options: Callable[[ArgumentParser], None] | None = None
    parted: Callable[[Row], str] = lambda _: ""
    unit: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return a column by its name; `KeyError` for another."""
        return {column.name: column for column in self.columns}[name]

    def key(self, row: Row) -> tuple[Any, ...]:
        """Return what names a row: the values of the given columns."""
        return tuple(row[column.name] for column in kinds(self.columns, "given"))

    def whole(self, row: Row) -> Row:
        """Return a row with all columns in order; `KeyError` for one that is not declared."""
        for name in row:
            self.column(name)
        return {column.name: row.get(column.name) for column in self.columns}


def kinds(columns: Iterable[Column], *kind: Kind) -> list[Column]:
    """Return the columns of these kinds."""
    return [column for column in columns if column.kind in kind]
