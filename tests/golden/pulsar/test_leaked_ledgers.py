"""The golden worlds of Pulsar by the analysis `leaked_ledgers` (by Spark: `tests/spark/`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.offline.analyses import LocalEngine
from tests.golden.pulsar.leak_tables import check_leaked_ledgers
from tests.golden.pulsar.worlds import load_worlds

pytestmark = pytest.mark.usefixtures("golden")


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_rows(every: int, tmp_path: Path) -> None:
    """The rows of each world, by default of each third one, by the local engine."""
    pytest.importorskip("duckdb")
    worlds = load_worlds()
    chosen = worlds[::every]

    assert len(worlds) >= 40
    assert sum(world["undecodable"] is not None for world in chosen) >= 5
    for world in chosen:
        check_leaked_ledgers(LocalEngine(threads=1), world, tmp_path / str(world["seed"]))
