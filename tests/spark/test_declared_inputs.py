"""The inputs of analyses as views: when those of a session are of other inputs, without a session;
the views of Pulsar's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.offline.analyses import Inputs, Options
from bkstore.spark.analysis import SparkEngine, _SessionViews
from tests.golden.pulsar.leak_tables import check_leaked_ledgers
from tests.golden.pulsar.worlds import load_worlds
from tests.models.leaks import check_leaks
from tests.models.pulsar_dumps import random_pulsar
from tests.worlds.random_dumps import write_dump

pytestmark = pytest.mark.spark


def test_views_are_of_their_inputs() -> None:
    """A session's views are used again for the same dump, metadata and second dump, whatever is
    asked of them; another one of any of the three, or none, has views of its own."""
    nothing: Any = None
    dump, metadata, other, another = (object() for _ in range(4))

    def inputs(*three: Any, **fields: Any) -> Inputs:
        return Inputs(*three, **fields)

    mine = _SessionViews(inputs(dump, metadata, other), nothing)
    alone = _SessionViews(inputs(dump), nothing)

    assert mine.has_inputs(inputs(dump, metadata, other))
    assert mine.has_inputs(inputs(dump, metadata, other, options=Options(top=3)))
    for three in (
        (another, metadata, other),
        (dump, another, other),
        (dump, metadata, another),
        (dump, None, other),
        (dump, metadata, None),
        (dump, other, metadata),
        (other, metadata, dump),
    ):
        assert not mine.has_inputs(inputs(*three))
    assert alone.has_inputs(inputs(dump))
    assert not alone.has_inputs(inputs(dump, metadata))
    assert not alone.has_inputs(inputs(dump, None, dump))
    assert not alone.has_inputs(inputs(dump, pulsar=another))


@pytest.mark.parametrize("count", [1, pytest.param(30, marks=pytest.mark.long)])
def test_leaked_ledgers(spark: Any, count: int, tmp_path: Path) -> None:
    """Each ledger of a random cluster of Pulsar has the row that it was made with."""
    pytest.importorskip("pandas")
    engine = SparkEngine(spark, 7)
    for seed in range(1, count + 1):
        world = random_pulsar(seed)
        check_leaks(engine, world, write_dump(world.dump, tmp_path / str(seed)))


@pytest.mark.usefixtures("golden")
@pytest.mark.parametrize("count", [1, pytest.param(1000, marks=pytest.mark.long)])
def test_golden_worlds(spark: Any, count: int, tmp_path: Path) -> None:
    """Each ledger of the golden worlds of Pulsar has its class, owner and bytes. The first one has
    a topic whose value is garbage."""
    pytest.importorskip("pandas")
    engine = SparkEngine(spark, 7)
    worlds = sorted(load_worlds(), key=lambda world: world["undecodable"] is None)

    assert worlds[0]["undecodable"]
    for world in worlds[:count]:
        check_leaked_ledgers(engine, world, tmp_path / str(world["seed"]))
