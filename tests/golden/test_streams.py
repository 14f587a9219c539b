"""Golden stream worlds and timelines under every strategy, and the seed's table of loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.streams import (
    STRATEGIES,
    ImageReader,
    LookupOptions,
    LookupResult,
    StreamImage,
    StreamLookup,
)
from tests.golden.data import load_json
from tests.golden.stream_tables import CELLS, QUERIES, WORLDS
from tests.models.stream_lookups import Oracle

FEW = LookupOptions(workers=1)  # readers answer at once: more threads would only take turns

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@pytest.fixture(scope="module")
def worlds(golden: Path) -> dict[str, Any]:
    """Return the golden worlds by name."""
    return {one["name"]: one for one in load_json(golden / "stream" / "worlds.json")["worlds"]}


@pytest.fixture(scope="module")
def images(worlds: dict[str, Any]) -> dict[str, StreamImage]:
    """Return the images of the worlds by name."""
    return {name: StreamImage.from_json(world) for name, world in worlds.items()}


@pytest.fixture(scope="module")
def timelines(golden: Path) -> list[tuple[StreamImage, list[tuple[Any, StreamImage]]]]:
    """Return the golden timelines: the first image, and each event with the image after it."""
    found = []
    for line in load_json(golden / "stream" / "timelines.json")["timelines"]:
        first = image = StreamImage.from_json(line["initial"])
        steps = [(event, image := image.apply(event)) for event in line["events"]]
        found.append((first, steps))
    return found


def said(result: LookupResult) -> tuple[str, list[list[Any]]]:
    """Return an answer as the golden data has it."""
    return result.status, [list(found) for found in result.objects]


@every_strategy
def test_worlds(worlds: dict[str, Any], images: dict[str, StreamImage], strategy: Any) -> None:
    """Every look-up of every golden world gives the golden answer."""
    asked = 0
    for name, image in images.items():
        with StreamLookup(image, ImageReader(image), strategy, options=FEW) as lookup:
            for query in worlds[name]["queries"]:
                asked += 1
                result = lookup.get_objects(*query["q"])

                assert (query["status"], query["objects"]) == said(result), query
                if query["status"] == "ok":
                    expected = query["covered_to"], query["satisfied"]

                    assert expected == (result.covered_to, result.satisfied), query

    assert 1127 == asked


@every_strategy
def test_timelines(timelines: list[Any], strategy: Any) -> None:
    """One index and one set of filters, kept over all events of a timeline, never mislead."""
    asked = 0
    for image, steps in timelines:
        with StreamLookup(image, ImageReader(image), strategy, options=FEW) as lookup:
            for event, after in steps:
                if event["op"] != "query":
                    lookup.update(after)
                    continue
                asked += 1

                assert (event["status"], event["objects"]) == said(lookup.get_objects(*event["q"]))
            last = steps[-1][1]

            assert set(last.node_of) >= set(lookup.filters.keys())

    assert 796 == asked


def test_oracle(worlds: dict[str, Any]) -> None:
    """The brute force that random worlds are judged by agrees with the golden answers."""
    for world in worlds.values():
        oracle = Oracle(world)
        for query in world["queries"]:
            status, found = oracle.answer(*query["q"])

            assert (query["status"], query["objects"]) == (status, [list(one) for one in found])


@pytest.mark.parametrize("name", WORLDS)
def test_table_of_loads(worlds: dict[str, Any], name: str) -> None:
    """Loads and waves of the seed's look-ups are, cell by cell, those of the worked example."""
    image = StreamImage.from_json(worlds[WORLDS[name]])
    for line in CELLS[name].split("\n")[1:-1]:
        strategy, *expected = line.split()
        options = LookupOptions(preload="eager" if strategy == "eager" else "miss")
        chosen: Any = "preload" if strategy == "eager" else strategy
        with StreamLookup(image, ImageReader(image), chosen, options=options) as lookup:
            stats = [lookup.get_objects(420000, *query).stats for query in QUERIES]

        assert expected == [f"{one.loads}/{one.waves}" for one in stats], strategy


ROUNDS = {
    (100, 200, 4): "[0,2,3,5,7]",
    (1000, 1600, 4): "[0,2,3,5,7] P[14,22,32,42] [16,18,20,26,28]",
    (1980, -1, 4): "[0,2,3,5,7] P[32,34,36,38,42]",
    (1700, 1900, 10): "[0,2,3,5,7] P[14,22,32,42] [34,36,38]",
}


@pytest.mark.parametrize("query", ROUNDS, ids=str)
def test_rounds(worlds: dict[str, Any], query: tuple[int, int, int]) -> None:
    """The waves of a cold look-up with preloads are those of the worked example."""
    image = StreamImage.from_json(worlds[WORLDS["P"]])
    with StreamLookup(image, ImageReader(image), "preload") as lookup:
        trace = lookup.get_objects(420000, *query).stats.trace

    assert ROUNDS[query] == " ".join(map(str, trace))


def test_sparse_index_is_bettered(worlds: dict[str, Any], images: dict[str, StreamImage]) -> None:
    """Filters and lazy index load less than today's sparse index, over the large worlds."""
    loads = dict.fromkeys(("bloom", "sparse-index"), 0.0)
    for strategy in loads:
        for name in (*WORLDS.values(), "sparse-0", "sparse-1"):
            image = images[name]
            with StreamLookup(image, ImageReader(image), strategy, options=FEW) as lookup:
                for query in worlds[name]["queries"]:
                    lookup.get_objects(*query["q"])
                loads[strategy] += lookup.stats["loads"]

    assert loads["bloom"] < loads["sparse-index"]


def test_round_trip(worlds: dict[str, Any]) -> None:
    """A world written as JSON and read again is the same, order aside."""
    for world in worlds.values():
        image = StreamImage.from_json(world)
        again = StreamImage.from_json(image.to_json())

        assert image.parts == again.parts
        assert len(image.objects) == sum(len(node["objects"]) for node in world["nodes"])
