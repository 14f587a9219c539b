"""Row: stream look-ups over 500 objects of 300 streams, index and filters warm."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from bkstore.streams import ImageReader, StreamLookup
from bkstore.streams.lookup.options import Strategy
from bkstore.testing.stream_worlds import WorldShape, random_queries, stream_image
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide

_SHAPE = WorldShape(
    nodes=1,
    streams=300,
    streams_per_object=(5, 15),
    stream_object_share=0,
    lost_share=0,
    move_probability=0,
)
_OBJECTS = 500
QUERY_COUNT = 390

_Query = tuple[int, int, int, int]


class _LookupSide:
    """Look-ups by one strategy, all run once already: its index and filters are warm."""

    def __init__(self, lookup: StreamLookup, queries: list[_Query]) -> None:
        self._lookup, self._queries = lookup, queries
        self.run()

    def run(self) -> list[tuple[int, int]]:
        """Run all queries; return the loads and waves of each."""
        all_stats = [self._lookup.get_objects(*query).stats for query in self._queries]
        return [(stats.loads, stats.waves) for stats in all_stats]


def _load_facts(bloom: _LookupSide, other: _LookupSide, strategy: Strategy) -> list[Fact]:
    """Return the mean loads of objects a look-up, beside those of the other strategy, and the mean
    waves: rounds of loads at the same time."""
    loads, waves = (statistics.mean(counts) for counts in zip(*bloom.run()))
    times_fewer = statistics.mean(count for count, _ in other.run()) / max(loads, 1e-9)
    comparison = Fact(f"times fewer loads than {strategy}", round(times_fewer, 1))
    if strategy == "load-all":
        comparison = replace(comparison, target=">= 50", holds=times_fewer >= 50)
    return [
        Fact("loads a look-up", round(loads, 2)),
        Fact("waves a look-up", round(waves, 2), target="<= 2", holds=waves <= 2),
        comparison,
    ]


def _stream_cases(context: Context) -> Cases:
    objects = context.scaled(_OBJECTS)
    image = stream_image(_SHAPE, objects, seed=context.seed)
    queries = random_queries(image, context.scaled(QUERY_COUNT, minimum=10), seed=context.seed)
    shape = f"{objects} objects of one node, 300 streams, 5 to 15 in an object; no load latency"
    with ExitStack() as stack:

        def open_side(strategy: Strategy) -> _LookupSide:
            lookup = StreamLookup(image, ImageReader(image), strategy)
            return _LookupSide(stack.enter_context(lookup), queries)

        bloom = open_side("bloom")
        limits: dict[Strategy, float | None] = {"load-all": None, "sparse-index": 1}
        for strategy, limit in limits.items():
            other = open_side(strategy)
            ours, baseline = TimedSide("bloom", bloom.run), TimedSide(strategy, other.run)
            facts = partial(_load_facts, bloom, other, strategy)
            case_name = f"bloom, {strategy}"
            yield Case(case_name, len(queries), shape, ours, (baseline,), limit=limit, facts=facts)


ROWS = (
    BenchmarkRow(
        "streams",
        "stream look-ups, warm",
        "Every look-up of a list, one behind the other, through one `StreamLookup` a strategy "
        "that has seen all of them once before. Loads cost nothing here but their bookkeeping, "
        "in threads whose time is not counted: wall times say more than CPU times of the caller, "
        "and loads and waves say most.",
        _stream_cases,
    ),
)
