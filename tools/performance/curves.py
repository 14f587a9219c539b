"""Pictures for the pages: figures by the size of the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bkstore.lab import Experiment, Panel, ResultColumn, Row
from bkstore.lab.presentation.picture import draw_picture
from tools.performance.figures import Figures

RATIO_PANELS = {
    "idx-availability": ("Availability, index file", "contiguous", "<= 2.5"),
    "rocks-availability": ("Availability, RocksDB", "entry ids", ">= 1.6"),
    "encoding": ("Encode and decode a stripe", "encode and decode", ">= 5"),
    "missing": ("Missing entries of a stripe", "6 lost", ">= 100"),
    "rocks-fill": ("Filling RocksDB", "put_many", ">= 3.5"),
    "bloom": ("Bloom filter", "build and probe", ">= 30"),
}
"""Rows measured at several sizes: title of the panel, case, target."""

STEP_PANELS = ("sequences", "comparison", "violations", "dump", "load to rocksdb", "fragmentation")
"""The pipeline steps whose seconds are drawn."""


class Picture(NamedTuple):
    """A picture: its columns and its panels."""

    columns: tuple[ResultColumn, ...]
    panels: tuple[Panel, ...]


def _ratio_rows(figures: Figures) -> Iterator[Row]:
    """Yield the ratio that each figure of a panel has, and the one that it must have."""
    for row, _ in figures.bench:
        _, case, target = RATIO_PANELS.get(row["row"], ("", "", ""))
        if row["case"] == case and not row["what"]:  # with a `what` it is no ratio
            key = {"row": row["row"], "entries": row["items"]}
            yield {**key, "line": "measured", "ratio": row["ratio"]}
            yield {**key, "line": "must be", "ratio": float(target.split()[1])}


def _step_rows(figures: Figures) -> Iterator[Row]:
    rows = (row for row, _ in figures.pipeline)
    yield from (row for row in rows if row["step"] in STEP_PANELS and not row["error"])


PICTURES = {
    "performance-ratios": Picture(
        tuple(ResultColumn(name, name) for name in ("entries", "ratio", "line")),
        tuple(
            Panel(f"{title} ({target})", "entries", "ratio", "line", {"row": row}, log="xy")
            for row, (title, _, target) in RATIO_PANELS.items()
        ),
    ),
    "performance-pipeline": Picture(
        tuple(ResultColumn(name, name) for name in ("entries", "seconds", "engine")),
        tuple(
            Panel(step, "entries", "seconds", "engine", {"step": step}, log="xy")
            for step in STEP_PANELS
        ),
    ),
}
_ROWS_OF_PICTURE = {"performance-ratios": _ratio_rows, "performance-pipeline": _step_rows}


def draw_curves(name: str, figures: Figures) -> bytes:
    """Return a picture as SVG; the same figures yield the same bytes."""
    columns, panels = PICTURES[name]
    experiment = Experiment(name, "", "", "", columns, panels, lambda _: [], lambda _: [])
    return draw_picture(experiment, {"rows": list(_ROWS_OF_PICTURE[name](figures))}, "svg")
