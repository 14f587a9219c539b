"""The experiment about look-ups: its numbers that are known beforehand. No times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.lab import LabRun
from bkstore.lab.experiments.lookups import CACHED_OBJECTS, EXPERIMENT, FILTER_RATES, LOAD_MS
from bkstore.streams import STRATEGIES

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Measure the tiny size."""
    return list(EXPERIMENT.measure(LabRun(Path(), 0.001, 1)))


def _series(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row["series"] == name]


def test_every_strategy_is_asked(rows: Rows) -> None:
    """Each series has its points, and all strategies but where filters alone are tried."""
    for name in ("length", "streams", "load", "claim"):
        assert set(STRATEGIES) == {row["strategy"] for row in _series(rows, name)}
    assert {"index", "bloom"} == {row["strategy"] for row in _series(rows, "rate")}
    assert {"load-all", "index", "bloom"} == {row["strategy"] for row in _series(rows, "kept")}
    assert set(FILTER_RATES) == {row["fpp"] for row in _series(rows, "rate")}
    assert set(CACHED_OBJECTS) == {row["kept"] for row in _series(rows, "kept")}
    assert set(LOAD_MS) == {row["load_ms"] for row in _series(rows, "load")}


def test_load_all_loads_all(rows: Rows) -> None:
    """In one wave, the first time and again, where nothing is kept at hand."""
    for row in rows:
        if row["strategy"] == "load-all" and not row["kept"]:
            assert (row["objects"], 1) == (row["first_loads"], row["first_waves"])
            assert (row["objects"], 1) == (row["loads"], row["waves"])


def test_what_is_kept_is_not_loaded(rows: Rows) -> None:
    """Where all objects are kept, the second turn loads none, by any strategy."""
    every = [row for row in _series(rows, "kept") if row["kept"] >= row["objects"]]

    assert 3 <= len(every)
    assert {0} == {row["loads"] for row in every}


def test_filters_cost_bytes_and_save_loads(rows: Rows) -> None:
    """The lower the rate, the more bytes and the fewer loads; the other strategies have none."""
    bloom = sorted(
        (row for row in _series(rows, "rate") if row["strategy"] == "bloom"),
        key=lambda row: -row["fpp"],
    )

    sizes = [row["filter_bytes"] for row in bloom]

    assert sorted(sizes) == sizes
    assert 0 < 2 * sizes[0] < sizes[-1]
    assert bloom[-1]["loads"] <= bloom[0]["loads"]
    assert {0} == {row["filter_bytes"] for row in rows if row["strategy"] == "load-all"}


def test_the_headline(rows: Rows) -> None:
    """Bloom loads fewer than the index, this fewer than sparse-index; the finding says how many."""
    warm = {row["strategy"]: row for row in _series(rows, "claim")}
    loads = [warm[name]["loads"] for name in ("bloom", "index", "sparse-index", "load-all")]

    assert sorted(loads) == loads
    assert (
        f"{loads[3] / loads[0]:.0f} times fewer loads than load-all"
        in EXPERIMENT.summarize(rows)[0]
    )
