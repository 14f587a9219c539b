"""Row: stream look-ups over 500 objects of 300 streams, index and filters warm."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bkstore.streams import ImageReader, StreamImage, StreamLookup
from bkstore.streams.lookup.options import Strategy
from bkstore.testing.stream_worlds import WorldShape, random_queries, stream_image
from tools.bench.measure import BenchmarkRow, Case, Context, Fact, TimedSide

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


class _LookupSides:
    """Look-ups of one strategy each over the same image, closed at the end."""

    def __init__(self, image: StreamImage, queries: list[_Query], open_until: ExitStack) -> None:
        self._image = image
        self._queries = queries
        self._open = open_until
        self._lookups: dict[Strategy, StreamLookup] = {}

    def side(self, strategy: Strategy) -> TimedSide:
        reader = ImageReader(self._image)
        self._lookups[strategy] = self._open.enter_context(
            StreamLookup(self._image, reader, strategy)
        )
        self._run_queries(strategy)
        return TimedSide(strategy, lambda: self._run_queries(strategy))

    def _run_queries(self, strategy: Strategy) -> list[tuple[int, int]]:
        get_objects = self._lookups[strategy].get_objects
        all_stats = [get_objects(*query).stats for query in self._queries]
        return [(stats.loads, stats.waves) for stats in all_stats]

    def facts(self, other: Strategy) -> list[Fact]:
        bloom_counts, other_counts = self._run_queries("bloom"), self._run_queries(other)
        loads = statistics.mean(count for count, _ in bloom_counts)
        fewer = statistics.mean(count for count, _ in other_counts) / max(loads, 1e-9)
        waves = statistics.mean(count for _, count in bloom_counts)
        limit = 50 if other == "load-all" else None
        return [
            Fact("loads a look-up", round(loads, 2)),
            Fact("waves a look-up", round(waves, 2), "<= 2", waves <= 2),
            Fact(
                f"times fewer loads than {other}",
                round(fewer, 1),
                f">= {limit}" if limit else None,
                fewer >= limit if limit else None,
            ),
        ]


@contextmanager
def _stream_cases(context: Context) -> Iterator[Iterator[Case]]:
    objects = context.scaled(_OBJECTS)
    image = stream_image(_SHAPE, objects, seed=context.seed)
    queries = random_queries(image, context.scaled(QUERY_COUNT, minimum=10), seed=context.seed)
    shape = f"{objects} objects of one node, 300 streams, 5 to 15 in an object; no load latency"
    with ExitStack() as open_until:
        sides = _LookupSides(image, queries, open_until)
        bloom = sides.side("bloom")

        def case(other: Strategy) -> Case:
            limit = 1 if other == "sparse-index" else None
            return Case(
                f"bloom, {other}",
                len(queries),
                shape,
                bloom,
                (sides.side(other),),
                limit,
                facts=lambda: sides.facts(other),
            )

        others: list[Strategy] = ["load-all", "sparse-index"]
        yield map(case, others)


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
