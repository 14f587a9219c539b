"""What the experiment `layouts` asks of its layouts, and what it says of a dump. No times."""

from __future__ import annotations

from itertools import product

import pytest

from bkstore.lab import Row
from bkstore.lab.experiments.layouts import (
    BATCH_ENTRIES,
    EXPERIMENT,
    INDEX_SIDES,
    MIN_P99_QUERIES,
    TUNED_SIDES,
    make_batches,
)
from bkstore.lab.workloads.index_loads import SHAPES, make_index_load


def _rows(*shapes: str) -> list[Row]:
    """Return rows whose figures are all 2, those of index files 4."""
    figures = [column.name for column in EXPERIMENT.columns if column.kind != "given"]
    return [
        {"shape": shape, "side": side, **dict.fromkeys(figures, 4 if side == "idx files" else 2)}
        for shape, side in product(shapes, (*INDEX_SIDES, *TUNED_SIDES))
    ]


def test_a_dump_has_a_sentence_of_its_own() -> None:
    """It stands behind those of the shapes, and is not there without a dump."""
    plain = EXPERIMENT.summarize(_rows("many small", "few large"))
    dumped = EXPERIMENT.summarize(_rows("many small", "few large", "dump"))

    assert plain == dumped[:-1]
    assert (
        "The dump's 4 entries in 4 ledgers take 4 bytes each in index files, 2 in RocksDB, which "
        "takes 50 % as long for a single read and 50 % as long for an availability."
    ) == dumped[-1]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_p99_is_of_many_batches(shape: str) -> None:
    """At the usual size every shape has batches for one, of different places."""
    load = make_index_load(shape, 60_000, 1)
    asked = make_batches(load)

    assert MIN_P99_QUERIES == len(asked)
    assert MIN_P99_QUERIES == len({(name, int(ids[0])) for name, ids in asked})
    for name, ids in asked:
        assert min(BATCH_ENTRIES, load.expected[name].size) == ids.size
        assert set(ids.tolist()) <= set(load.expected[name].tolist())
    assert {name for name, _ in asked} <= load.expected.keys()


def test_few_ledgers_have_few_batches() -> None:
    """A small load has as many as it has places, and no p99 then."""
    asked = make_batches(make_index_load("few large", 600, 1))

    assert 3 == len(asked) < MIN_P99_QUERIES
