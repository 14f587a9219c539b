"""An experiment that measures nothing: rows that are known, to test what the lab does with them."""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.lab import Experiment, LabRun, Panel, ResultColumn, Row

__all__ = ["TOY", "measure_toys"]


def measure_toys(run: LabRun) -> Iterator[Row]:
    """Yield a row for each toy and number of children."""
    run.import_optional("no_such_library")
    for side, factor in (("one", 1), ("two & <three>", 2)):
        for size in (10, 100, 1000):
            yield {"side": side, "size": size, "bytes": factor * size, "time": factor * size / 7}
    yield {"side": "words", "size": 10, "name": "a", "time": 1.0}


TOY = Experiment(
    name="toy",
    question="How large is a toy?",
    method="By looking.",
    data="Two toys.",
    columns=(
        ResultColumn("side", "toy", kind="given"),
        ResultColumn("size", "children", kind="given"),
        ResultColumn("name", "name", kind="count"),
        ResultColumn("bytes", "room", "bytes", "count"),
        ResultColumn("time", "playing", "ms"),
    ),
    panels=(
        Panel("Room", "size", "bytes", "side", log="xy"),
        Panel("Playing", "size", "time", "side", {"side": ("one", "words")}),
        Panel("By toy", "side", "time", None, {"size": 10}, tick_column="time"),
    ),
    measure=measure_toys,
    summarize=lambda rows: [f"{len(rows)} rows, the largest {max(r['bytes'] or 0 for r in rows)}."],
)
