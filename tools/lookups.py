"""Loads and waves of stream look-ups by strategy: `python -m tools.lookups`.

A world each, all on one node, 5 to 15 streams in an object; random look-ups of up to 4 objects,
asked twice: the first time warms index and filters up.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from bkstore.streams import (
    STRATEGIES,
    ImageReader,
    ObjectFilters,
    QueryStats,
    StreamImage,
    StreamLookup,
)
from bkstore.streams.lookup.options import LookupOptions, Strategy
from bkstore.testing.stream_worlds import WorldShape, random_queries, stream_image
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import turned

CLAIM = (500, 300)
"""Objects and streams of the world that the headline is about."""

_OBJECTS, _STREAMS, _FPP = 200, 120, 0.01
_LENGTHS = (50, 100, 200, 400)
_STREAM_COUNTS = (40, 100, 300)
RATES = (0.5, 0.2, 0.1, 0.03, 0.01, 0.001)
KEPT = (0, 20, 200)
LOAD_MS = (1, 4, 16)
_QUERIES, _SLOW_QUERIES = 60, 3

_Queries = Sequence[tuple[int, int, int, int]]


class Point(NamedTuple):
    """What is varied: the world, the filters' rate, objects kept at hand, how long a load takes."""

    objects: int
    streams: int
    fpp: float = _FPP
    kept: int = 0
    load_ms: int = 0


def _world(point: Point, seed: int) -> StreamImage:
    shape = WorldShape(
        nodes=1, streams=point.streams, per_object=(5, 15), alone=0.0, lost=0.0, moved=0.0
    )
    return stream_image(shape, point.objects, seed)


_Turn = list[QueryStats]
"""What each query of a turn came to."""


def _turns(
    image: StreamImage, strategies: Sequence[Strategy], queries: _Queries, point: Point, rounds: int
) -> Iterator[tuple[Strategy, list[_Turn], float]]:
    """Ask all queries once, then again in each round; yield the turns, the filters' bytes too.

    Strategies take turns. The index and the filters of each are kept from the first one on.
    """
    options = LookupOptions(keep_objects=point.kept)
    with ExitStack() as closing:
        lookups = {}
        for strategy in strategies:
            reader = ImageReader(image, latency=point.load_ms / 1e3)
            filters = ObjectFilters(fpp=point.fpp)
            lookup = StreamLookup(image, reader, strategy, filters=filters, options=options)
            lookups[strategy] = closing.enter_context(lookup)
        turns: dict[Strategy, list[_Turn]] = {strategy: [] for strategy in strategies}
        for nth in range(1 + rounds):
            for strategy in turned(strategies, nth):
                ask = lookups[strategy].get_objects
                turns[strategy].append([ask(*query).stats for query in queries])
        for strategy, lookup in lookups.items():
            yield strategy, turns[strategy], lookup.stats["filter_bytes"]


def _cost(turns: Sequence[_Turn]) -> Row:
    """Return loads and waves of the first of some turns, and how long a look-up takes."""
    taken = np.median([[one.seconds for one in turn] for turn in turns], axis=0)
    return {
        "loads": statistics.mean(one.loads for one in turns[0]),
        "waves": statistics.mean(one.waves for one in turns[0]),
        "ms": float(np.median(taken)) * 1e3,
    }


def _series(
    run: Run,
    name: str,
    points: Sequence[Point],
    queries: int,
    strategies: Sequence[Strategy] = STRATEGIES,
    rounds: int = 1,
) -> Iterator[Row]:
    for point in dict.fromkeys(points):
        run.tell(f"{name}: {point}")
        image = _world(point, run.seed)
        asked = random_queries(image, queries, run.seed)
        for strategy, turns, size in _turns(image, strategies, asked, point, rounds):
            yield {
                "series": name,
                **point._asdict(),
                "strategy": strategy,
                "queries": queries,
                **{f"first_{column}": value for column, value in _cost(turns[:1]).items()},
                **_cost(turns[1:]),
                "refusals": statistics.mean(one.filter_refusals for one in turns[1]),
                "filter_bytes": size,
            }


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each series, point and strategy; the claim's world comes last."""
    ratio = CLAIM[1] / CLAIM[0]
    queries, slow = run.scaled(_QUERIES, 10), run.scaled(_SLOW_QUERIES, 2)
    lengths = [run.scaled(each, 10) for each in _LENGTHS]
    objects, streams = run.scaled(_OBJECTS, 20), run.scaled(_STREAMS, 15)
    by_length = [Point(each, max(15, int(each * ratio))) for each in lengths]
    by_streams = [Point(objects, run.scaled(each, 15)) for each in _STREAM_COUNTS]
    usual = Point(objects, streams)
    yield from _series(run, "length", by_length, queries)
    yield from _series(run, "streams", by_streams, queries)
    rates = [usual._replace(fpp=rate) for rate in RATES]
    yield from _series(run, "rate", rates, queries, ("index", "bloom"))
    yield from _series(
        run,
        "kept",
        [usual._replace(kept=kept) for kept in KEPT],
        queries,
        ("load-all", "index", "bloom"),
    )
    loads = [usual._replace(load_ms=each) for each in LOAD_MS]
    yield from _series(run, "load", loads, slow, rounds=run.rounds)
    claim = Point(run.scaled(CLAIM[0], 40), run.scaled(CLAIM[1], 24))
    yield from _series(run, "claim", [claim], run.scaled(390, 12))


def found(rows: Rows) -> list[str]:
    """Return what the rows come to, index and filters warm."""
    warm = {row["strategy"]: row for row in rows if row["series"] == "claim"}
    bloom, sparse, every = warm["bloom"], warm["sparse-index"], warm["load-all"]
    slow = {row["strategy"]: row for row in rows if row["load_ms"] == LOAD_MS[-1]}
    kept = {row["kept"]: row for row in rows if row["series"] == "kept" and _is(row, "bloom")}
    rates = {row["fpp"]: row for row in rows if row["series"] == "rate" and _is(row, "bloom")}
    return [
        f"{bloom['objects']} objects, {bloom['streams']} streams, warm: bloom needs "
        f"{every['loads'] / bloom['loads']:.0f} times fewer loads than load-all, "
        f"{sparse['loads'] / bloom['loads']:.1f} times fewer than sparse-index, in "
        f"{bloom['waves']:.2f} waves on average.",
        f"With loads of {LOAD_MS[-1]} ms a look-up takes {slow['bloom']['ms']:.0f} ms by bloom, "
        f"{slow['sparse-index']['ms']:.0f} by sparse-index, {slow['load-all']['ms']:.0f} by "
        f"load-all with {LookupOptions().workers} loads at a time.",
        f"Keeping {KEPT[-1]} objects at hand brings bloom from {kept[0]['loads']:.2f} loads to "
        f"{kept[KEPT[-1]]['loads']:.2f}; filters at {RATES[0]:.0%} instead of {_FPP:.0%} from "
        f"{rates[_FPP]['loads']:.2f} to {rates[RATES[0]]['loads']:.2f}.",
    ]


def _is(row: Row, strategy: str) -> bool:
    return bool(row["strategy"] == strategy)


EXPERIMENT = Experiment(
    name="lookups",
    question="How many objects does a look-up load, by which strategy?",
    method=(
        "Each strategy is asked the same look-ups twice; figures are of the second time, index "
        "and filters warm, except those of the first look. Loads and waves are means, times "
        "medians of wall time. Readers answer at once, but for the series of slow loads: there "
        "look-ups are asked again in every round, strategies take turns, and of each look-up the "
        "median of the rounds counts. Elsewhere times are of one turn."
    ),
    data=(
        "One node at scale 1: 50 to 400 objects with 3 streams for 5 objects; 200 objects with 40 "
        "to 300 streams; 200 objects, 120 streams for rates, kept objects and slow loads; the "
        "claim's 500 objects and 300 streams."
    ),
    columns=(
        Column("series", "series", kind="given"),
        Column("strategy", "strategy", kind="given"),
        Column("objects", "objects of the node", kind="given"),
        Column("streams", "streams", kind="given"),
        Column("fpp", "wanted rate of wrong yes", kind="given"),
        Column("kept", "objects kept at hand", kind="given"),
        Column("load_ms", "a load", "ms", "given"),
        Column("queries", "look-ups", kind="count"),
        Column("first_loads", "first loads", "a look-up", "count"),
        Column("first_waves", "first waves", "a look-up", "count"),
        Column("loads", "loads", "a look-up", "count"),
        Column("waves", "waves", "a look-up", "count"),
        Column("refusals", "filters' no", "a look-up", "count"),
        Column("filter_bytes", "filters", "bytes", "count"),
        Column("first_ms", "first look-up", "ms"),
        Column("ms", "look-up", "ms"),
    ),
    panels=(
        Panel(
            "Loads by length of the list",
            "objects",
            "loads",
            "strategy",
            {"series": "length"},
            log="xy",
        ),
        Panel(
            "Waves by length of the list",
            "objects",
            "waves",
            "strategy",
            {"series": "length"},
            log="xy",
        ),
        Panel("Loads by streams", "streams", "loads", "strategy", {"series": "streams"}, log="xy"),
        Panel(
            "Loads by rate of the filters", "fpp", "loads", "strategy", {"series": "rate"}, log="x"
        ),
        Panel("Loads by objects kept", "kept", "loads", "strategy", {"series": "kept"}),
        Panel(
            "Time by latency of a load", "load_ms", "ms", "strategy", {"series": "load"}, log="xy"
        ),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
