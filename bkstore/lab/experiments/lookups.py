"""Loads and waves of stream look-ups by strategy: `bkstore lab lookups`. Each point has a world
of its own, on one node, with 5 to 15 streams per object. Random look-ups of up to 4 objects are run
twice: the first turn warms up index and filters."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Literal, NamedTuple

import numpy as np

from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.timing import rotate
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

CLAIM_OBJECTS, CLAIM_STREAMS = 500, 300  # the size of the world for the first finding
_OBJECTS, _STREAMS, _USUAL_FPP = 200, 120, 0.01
_OBJECT_COUNTS = (50, 100, 200, 400)
_STREAM_COUNTS = (40, 100, 300)
FILTER_RATES = (0.5, 0.2, 0.1, 0.03, 0.01, 0.001)
CACHED_OBJECTS = (0, 20, 200)
LOAD_MS = (1, 4, 16)
_QUERY_COUNT, _SLOW_QUERY_COUNT, _CLAIM_QUERY_COUNT = 60, 3, 390

_Queries = Sequence[tuple[int, int, int, int]]


class WorldPoint(NamedTuple):
    """The varied values: world size, false-positive rate, objects kept in memory, load time."""

    objects: int
    streams: int
    fpp: float = _USUAL_FPP
    kept: int = 0
    load_ms: int = 0


def _make_world(point: WorldPoint, seed: int) -> StreamImage:
    """Return a random image, a snapshot of which objects hold which streams: one node, all objects
    with ranges of many streams, none of them lost or moved to another node."""
    shape = WorldShape(
        nodes=1,
        streams=point.streams,
        streams_per_object=(5, 15),
        stream_object_share=0.0,
        lost_share=0.0,
        move_probability=0.0,
    )
    return stream_image(shape, point.objects, seed)


_Turn = list[QueryStats]  # the statistics of each query in a turn


def _run_turns(
    image: StreamImage,
    strategies: Sequence[Strategy],
    queries: _Queries,
    point: WorldPoint,
    rounds: int,
) -> Iterator[tuple[Strategy, list[_Turn], float]]:
    """Yield for each look-up strategy the statistics of its queries, a list for each turn, and the
    bytes of its bloom filters. Each strategy runs all queries in a first turn, which fills its
    index and its filters, then once in each round with these kept; strategies take turns."""
    options = LookupOptions(keep_objects=point.kept)
    with ExitStack() as closing:
        lookups = {}
        for strategy in strategies:
            reader = ImageReader(image, latency=point.load_ms / 1e3)
            filters = ObjectFilters(fpp=point.fpp)
            lookup = StreamLookup(image, reader, strategy, filters=filters, options=options)
            lookups[strategy] = closing.enter_context(lookup)
        turns: dict[Strategy, list[_Turn]] = {strategy: [] for strategy in strategies}
        for round_number in range(1 + rounds):
            for strategy in rotate(strategies, round_number):
                get_objects = lookups[strategy].get_objects
                turns[strategy].append([get_objects(*query).stats for query in queries])
        for strategy, lookup in lookups.items():
            yield strategy, turns[strategy], lookup.stats["filter_bytes"]


def _lookup_cost(turns: Sequence[_Turn]) -> Row:
    """Return the mean numbers of loaded objects and of waves of a query (the loads of a wave run at
    the same time), and the median time. The numbers are the same in each turn; a query's time is
    its median over the turns."""
    query_seconds = np.median([[stats.seconds for stats in turn] for turn in turns], axis=0)
    return {
        "loads": statistics.mean(stats.loads for stats in turns[0]),
        "waves": statistics.mean(stats.waves for stats in turns[0]),
        "ms": float(np.median(query_seconds)) * 1e3,
    }


def _measure_series(
    run: LabRun,
    series: str,
    points: Sequence[WorldPoint],
    query_count: int,
    strategies: Sequence[Strategy],
    rounds: int,
) -> Iterator[Row]:
    """Yield a row for each distinct point (the values that make a world) and each strategy. The
    columns "first_..." are the costs of the first turn, in which index and filters are made; the
    other costs are those of the later turns."""
    for point in dict.fromkeys(points):
        run.report_progress(f"{series}: {point}")
        image = _make_world(point, run.seed)
        queries = random_queries(image, query_count, run.seed)
        for strategy, turns, filter_bytes in _run_turns(image, strategies, queries, point, rounds):
            yield {
                "series": series,
                **point._asdict(),
                "strategy": strategy,
                "queries": query_count,
                **{f"first_{column}": value for column, value in _lookup_cost(turns[:1]).items()},
                **_lookup_cost(turns[1:]),
                # Of the second turn, the first one with all filters.
                "refusals": statistics.mean(stats.filter_refusals for stats in turns[1]),
                "filter_bytes": filter_bytes,
            }


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each series, point and strategy. A point is the values that make a world of
    objects and streams. Each series varies one value of the usual point, except the last one,
    "claim": its only point is the world that the first finding is about."""
    streams_per_object = CLAIM_STREAMS / CLAIM_OBJECTS
    query_count = run.scaled(_QUERY_COUNT, minimum=10)
    slow_query_count = run.scaled(_SLOW_QUERY_COUNT, minimum=2)
    object_counts = [run.scaled(value, minimum=10) for value in _OBJECT_COUNTS]
    objects, streams = run.scaled(_OBJECTS, minimum=20), run.scaled(_STREAMS, minimum=15)
    length_points = [
        WorldPoint(count, max(15, int(count * streams_per_object))) for count in object_counts
    ]
    stream_points = [WorldPoint(objects, run.scaled(value, minimum=15)) for value in _STREAM_COUNTS]
    claim = WorldPoint(run.scaled(CLAIM_OBJECTS, minimum=40), run.scaled(CLAIM_STREAMS, minimum=24))
    claim_query_count = run.scaled(_CLAIM_QUERY_COUNT, minimum=12)
    usual = WorldPoint(objects, streams)
    rate_points = [usual._replace(fpp=rate) for rate in FILTER_RATES]
    kept_points = [usual._replace(kept=kept) for kept in CACHED_OBJECTS]
    load_points = [usual._replace(load_ms=value) for value in LOAD_MS]
    every: Sequence[Strategy] = STRATEGIES
    filters: Sequence[Strategy] = ("index", "bloom")
    compared: Sequence[Strategy] = ("load-all", "index", "bloom")
    # Each series: name, points, number of queries, strategies, rounds. Only times need several
    # rounds, and only those of slow loads are of interest.
    all_series: list[tuple[str, list[WorldPoint], int, Sequence[Strategy], int]] = [
        ("length", length_points, query_count, every, 1),
        ("streams", stream_points, query_count, every, 1),
        ("rate", rate_points, query_count, filters, 1),
        ("kept", kept_points, query_count, compared, 1),
        ("load", load_points, slow_query_count, every, run.rounds),
        ("claim", [claim], claim_query_count, every, 1),
    ]
    run.expect_steps(sum(len(set(points)) for _, points, *_ in all_series))
    for series in all_series:
        yield from _measure_series(run, *series)


def summarize(rows: Rows) -> list[str]:
    """Return the findings, for indexes and filters that an earlier turn has made ("warm"). The
    series "claim" is the world of the first finding; in "kept" the number of objects that stay in
    memory varies, in "rate" the false-positive rate of filters."""
    claim_rows = {row["strategy"]: row for row in rows if row["series"] == "claim"}
    bloom, load_all = claim_rows["bloom"], claim_rows["load-all"]
    sparse_index = claim_rows["sparse-index"]
    slow_rows = {row["strategy"]: row for row in rows if row["load_ms"] == LOAD_MS[-1]}
    bloom_rows = [row for row in rows if row["strategy"] == "bloom"]
    kept_rows = {row["kept"]: row for row in bloom_rows if row["series"] == "kept"}
    rate_rows = {row["fpp"]: row for row in bloom_rows if row["series"] == "rate"}
    return [
        f"{bloom['objects']} objects, {bloom['streams']} streams, warm: bloom needs "
        f"{load_all['loads'] / bloom['loads']:.0f} times fewer loads than load-all, "
        f"{sparse_index['loads'] / bloom['loads']:.1f} times fewer than sparse-index, in "
        f"{bloom['waves']:.2f} waves on average.",
        f"With loads of {LOAD_MS[-1]} ms a look-up takes {slow_rows['bloom']['ms']:.0f} ms by "
        f"bloom, {slow_rows['sparse-index']['ms']:.0f} by sparse-index, "
        f"{slow_rows['load-all']['ms']:.0f} by load-all with {LookupOptions().workers} loads at a "
        "time.",
        f"Keeping {CACHED_OBJECTS[-1]} objects at hand brings bloom from "
        f"{kept_rows[0]['loads']:.2f} loads to {kept_rows[CACHED_OBJECTS[-1]]['loads']:.2f}; "
        f"filters at {FILTER_RATES[0]:.0%} instead of {_USUAL_FPP:.0%} from "
        f"{rate_rows[_USUAL_FPP]['loads']:.2f} to {rate_rows[FILTER_RATES[0]]['loads']:.2f}.",
    ]


def _strategy_panel(title: str, x: str, y: str, series: str, log: Literal["", "x", "xy"]) -> Panel:
    return Panel(title, x, y, "strategy", {"series": series}, log=log)


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
        ResultColumn("series", "series", kind="given"),
        ResultColumn("strategy", "strategy", kind="given"),
        ResultColumn("objects", "objects of the node", kind="given"),
        ResultColumn("streams", "streams", kind="given"),
        ResultColumn("fpp", "target false positive rate", kind="given"),
        ResultColumn("kept", "objects kept at hand", kind="given"),
        ResultColumn("load_ms", "a load", "ms", "given"),
        ResultColumn("queries", "look-ups", kind="count"),
        ResultColumn("first_loads", "first loads", "a look-up", "count"),
        ResultColumn("first_waves", "first waves", "a look-up", "count"),
        ResultColumn("loads", "loads", "a look-up", "count"),
        ResultColumn("waves", "waves", "a look-up", "count"),
        ResultColumn("refusals", "filters' no", "a look-up", "count"),
        ResultColumn("filter_bytes", "filters", "bytes", "count"),
        ResultColumn("first_ms", "first look-up", "ms"),
        ResultColumn("ms", "look-up", "ms"),
    ),
    panels=(
        _strategy_panel("Loads by length of the list", "objects", "loads", "length", "xy"),
        _strategy_panel("Waves by length of the list", "objects", "waves", "length", "xy"),
        _strategy_panel("Loads by streams", "streams", "loads", "streams", "xy"),
        _strategy_panel("Loads by rate of the filters", "fpp", "loads", "rate", "x"),
        _strategy_panel("Loads by objects kept", "kept", "loads", "kept", ""),
        _strategy_panel("Time by latency of a load", "load_ms", "ms", "load", "xy"),
    ),
    measure=measure,
    summarize=summarize,
)
