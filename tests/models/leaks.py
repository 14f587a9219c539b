"""Rows of `leaked_ledgers` compared with those that a random world was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, Inputs, Options, PulsarMetadata
from tests.models.pulsar_dumps import COLUMNS, UNREADABLE, PulsarWorld
from tests.pulsar.samples import NOW


def leak_rows(engine: Any, inputs: Inputs) -> list[tuple[Any, ...]]:
    """Return the rows of the analysis by an engine, in the columns of `PulsarWorld.rows`. A reason
    why metadata cannot be read is left out."""
    table = engine.run(ANALYSES["leaked_ledgers"], inputs)
    rows = table.select(COLUMNS).to_pylist()
    for row in rows:
        if (row["detail"] or "").startswith(UNREADABLE):
            row["detail"] = UNREADABLE
    return [tuple(row.values()) for row in rows]


def check_leaks(engine: Any, world: PulsarWorld, dump: Path) -> None:
    """Compare the rows of all ledgers, and the findings about nodes."""
    pulsar = PulsarMetadata(world.pulsar())
    inputs = analyses.open_inputs(dump, world.store, None, Options(as_of=NOW), pulsar)

    assert world.rows() == leak_rows(engine, inputs)
    assert sorted(world.doubtful) == sorted(str(each.file) for each in pulsar.findings)
