"""Figures over the size of the data, as pictures of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.lab import Column, Experiment, Panel, Row
from tools.lab.picture import draw_picture
from tools.performance.figures import Figures

RATIOS = {
    "idx-availability": ("Availability, index file", "contiguous", "<= 2.5"),
    "rocks-availability": ("Availability, RocksDB", "entry ids", ">= 1.6"),
    "encoding": ("Encode and decode a stripe", "encode and decode", ">= 5"),
    "missing": ("Missing entries of a stripe", "6 lost", ">= 100"),
    "rocks-fill": ("Filling RocksDB", "put_many", ">= 3.5"),
    "bloom": ("Bloom filter", "build and probe", ">= 30"),
}
"""Rows that are measured at several sizes: title of the panel, case, what must be."""

STEPS = ("sequences", "comparison", "violations", "dump", "load to rocksdb", "fragmentation")
"""Steps of the pipeline whose seconds are drawn."""


class Picture(NamedTuple):
    """A picture: what its file is called, its columns and panels, and what makes its rows."""

    name: str
    columns: tuple[Column, ...]
    panels: tuple[Panel, ...]


def _ratios(figures: Figures) -> Iterator[Row]:
    """Yield the ratio of each row at each size, and what must be there."""
    for row, _ in figures.bench:
        _, case, target = RATIOS.get(row["row"], ("", "", ""))
        if row["case"] == case and not row["what"]:
            at = {"row": row["row"], "entries": row["items"]}
            yield {**at, "line": "measured", "ratio": row["ratio"]}
            yield {**at, "line": "must be", "ratio": float(target.split()[1])}


def _steps(figures: Figures) -> Iterator[Row]:
    """Yield seconds and memory of each step, engine and size."""
    yield from (row for row, _ in figures.pipeline if row["step"] in STEPS and not row["error"])


PICTURES = {
    "performance-ratios": Picture(
        "performance-ratios",
        (Column("entries", "entries"), Column("ratio", "ratio"), Column("line", "line")),
        tuple(
            Panel(f"{title} ({target})", "entries", "ratio", "line", {"row": row}, log="xy")
            for row, (title, _, target) in RATIOS.items()
        ),
    ),
    "performance-pipeline": Picture(
        "performance-pipeline",
        (
            Column("entries", "entries"),
            Column("seconds", "seconds"),
            Column("engine", "engine"),
        ),
        tuple(
            Panel(step, "entries", "seconds", "engine", {"step": step}, log="xy") for step in STEPS
        ),
    ),
}
_ROWS = {"performance-ratios": _ratios, "performance-pipeline": _steps}


def picture(name: str, figures: Figures) -> bytes:
    """Return a picture as SVG; the same figures, the same bytes."""
    columns, panels = PICTURES[name][1:]
    sheet = Experiment(name, "", "", "", columns, panels, lambda _: [], lambda _: [])
    return draw_picture(sheet, {"rows": list(_ROWS[name](figures))}, "svg")
