"""Stream look-ups: loads that fail or take long, answers under every option, the generator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument, LoadFailed
from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.streams import (
    STRATEGIES,
    AnswerObject,
    ImageReader,
    LookupOptions,
    ObjectFilters,
    ObjectRanges,
    QueryStats,
    StreamImage,
    StreamLookup,
)
from bkstore.streams.lookup.answer_chain import check_answer
from bkstore.testing.stream_worlds import StreamWriter, WorldShape, random_queries
from tests.streams.small_world import S, opened, trace, world

# -- what goes wrong while loading


def _failing(
    document: dict[str, Any], fails: set[int], strategy: Any, **options: Any
) -> StreamLookup:
    image = StreamImage.from_json(document)
    reader = ImageReader(image, failures=lambda one: one in fails)
    return StreamLookup(image, reader, strategy, options=LookupOptions(**options))


@pytest.mark.parametrize("options", [{}, {"preload": "eager"}], ids=str)
def test_failed_preload_fails_no_look_up(options: dict[str, Any]) -> None:
    """Preloads of broken objects are counted, and the answer is the same."""
    with _failing(world(20), {12, 16, 20}, "bloom", **options) as lookup:
        result = lookup.get_objects(S, 65, 70, 1)

        assert [AnswerObject("SSO", 7, 60, 70)] == result.objects
        assert 0 < result.stats.failed_preloads <= result.stats.preloads
        assert not {12, 16, 20} & set(lookup.filters.keys())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failed_load(strategy: Any) -> None:
    """A failed load fails the look-up, leaves nothing behind, and the next look-up tries again."""
    fails = {2}
    with _failing(world(3), fails, strategy, keep_objects=9) as lookup:
        for _ in range(2):
            with pytest.raises(LoadFailed, match="object 2"):
                lookup.get_objects(S, 0, 30, 9)
        assert 2 not in lookup.filters
        assert lookup.index.floor(S, 1, 15) in (None, (0, 1))
        assert lookup._loader.get_cached(2) is None
        assert 2 == lookup.stats["lookups_error"]

        fails.clear()

        assert [1, 2, 3] == [one.object_id for one in lookup.get_objects(S, 0, 30, 9).objects]


def test_failure_while_learning() -> None:
    """An index or filter that refuses what was loaded fails the look-up as a load would."""

    class Reader:
        def load(self, object_id: int, image: StreamImage) -> ObjectRanges:
            odd = np.array([S, 8], np.int64)
            return ObjectRanges(odd, odd[:1], odd)

    image = StreamImage.from_json(world())
    with StreamLookup(image, Reader(), options=LookupOptions(keep_objects=4)) as lookup:
        with pytest.raises(InvalidArgument, match="streams have"):
            lookup.get_objects(S, 0, 30, 9)

        assert [None] * 3 == [lookup._loader.get_cached(one) for one in (1, 2, 3)]


class _Gate:
    """A reader whose loads wait until they are let through."""

    def __init__(self, image: StreamImage) -> None:
        self.image = image
        self.open = threading.Event()
        self.loads: list[int] = []

    def load(self, object_id: int, image: StreamImage) -> ObjectRanges:
        self.loads.append(object_id)
        assert self.open.wait(60)
        return image.objects[object_id]


def test_load_timeout() -> None:
    """A load that is late fails the look-up; it goes on, and the next look-up joins it."""
    image = StreamImage.from_json(world(1))
    gate = _Gate(image)
    options = LookupOptions(load_timeout=0.01)
    with StreamLookup(image, gate, "partial", options=options) as lookup:
        for _ in range(3):
            with pytest.raises(LoadFailed, match=r"object 1: not loaded within 0\.01 s"):
                lookup.get_objects(S, 0, 10, 1)

        assert [1] == gate.loads
        assert 2 == lookup.stats["joined"]
        gate.open.set()


def test_closed() -> None:
    """A closed look-up says so, whether it would have to load or not; closing twice is fine."""
    lookup = opened(world(3, 1))
    lookup.get_objects(S, 0, 30, 9)
    lookup.close()
    lookup.close()

    for stream in (S, 8, 99):
        with pytest.raises(IllegalOperation, match="is closed"):
            lookup.get_objects(stream, 0, 30, 9)


# -- answers


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([("SSO", 1, 6, 9)], r"object 1 with \[6, 9\) does not continue at 5"),
        ([("SSO", 1, 0, 5)], "does not continue at 5"),
        ([("SSO", 1, 5, 9), ("SSO", 2, 10, 12)], r"object 2 .* does not continue at 9"),
        ([("SSO", 1, 5, 9), ("SO", 2, 8, 12)], "object 2"),
        ([("SSO", 1, 5, 9), ("SSO", 2, 9, 9)], "object 2"),
        ([("SSO", at, at, at + 1) for at in range(5, 9)], "4 objects found, limit 3"),
    ],
)
def test_check_of_answers(objects: list[tuple[Any, ...]], reason: str) -> None:
    """A gap, an overlap, a late or empty first slice and one too many are no answer."""
    check_answer([AnswerObject("SSO", 1, 3, 9), AnswerObject("SO", 2, 9, 12)], 5, 2)

    with pytest.raises(CorruptionError, match=reason):
        check_answer([AnswerObject(*one) for one in objects], 5, 3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_invalid_and_empty(strategy: Any) -> None:
    """What cannot be asked is invalid; nothing to find, limit 0 and no range are empty."""
    with opened(world(), strategy) as lookup:
        for query in ((-1, 0, 9, 9), (99, 0, 9, 9), (S, -1, 9, 9), (S, 9, 5, 9), (S, 0, 9, -1)):
            result = lookup.get_objects(*query)

            assert ("invalid", [], None, False) == (
                result.status,
                result.objects,
                result.covered_to,
                result.satisfied,
            )
        for query in ((S, 5, 5, 9), (S, 0, 9, 0), (S, 30, 40, 9), (S, 30, -1, 9)):
            assert ("ok", []) == (
                lookup.get_objects(*query).status,
                lookup.get_objects(*query).objects,
            )
        stats = lookup.stats

        assert (5, 8, 13) == tuple(
            stats[name] for name in ("lookups_invalid", "lookups_empty", "lookups")
        )


def test_stats() -> None:
    """What a look-up costs is counted for it and in sum, with the sizes of what is kept."""
    seen = []

    class Observer:
        def observe(self, result: str, stats: QueryStats) -> None:
            seen.append((result, stats.loads))

    image = StreamImage.from_json(world(6, 6, others_first=True))
    ticks = iter(range(100))
    with StreamLookup(
        image, ImageReader(image), observer=Observer(), clock=lambda: float(next(ticks))
    ) as lookup:
        cold = lookup.get_objects(S, 0, 30, 9)
        warm = lookup.get_objects(S, 10, 45, 2)
        stats = lookup.stats

    assert ("complete", "complete") == (cold.kind, warm.kind)
    assert "[7,8,9,10,11] P[12,2,4,6] [1,3,5]" == trace(cold.stats)
    assert (12, 3, 4) == (cold.stats.loads, cold.stats.waves, cold.stats.preloads)
    assert (6, 0, 1) == (cold.stats.without_stream, cold.stats.index_hits, cold.stats.index_misses)
    assert (2, 1, 7) == (warm.stats.objects, warm.stats.index_hits, warm.stats.skipped)
    assert (1.0, 12) == (warm.stats.seconds, warm.stats.listed)
    assert [("complete", 12), ("complete", 5)] == seen
    assert (12, 12) == (stats["filters"], stats["index_entries"])
    assert 17 == stats["loads"]


def test_filter_refusals() -> None:
    """Objects whose filters refuse the stream are passed by; without room for filters, loaded."""
    for room, refused in ((1 << 20, 6), (0, 0)):
        image = StreamImage.from_json(world(1, 6, others_first=True))
        filters = ObjectFilters(room)
        with StreamLookup(image, ImageReader(image), filters=filters) as lookup:
            for at in range(6):
                lookup.get_objects(8, at, at + 1, 1)
            lookup.index.clear()
            stats = lookup.get_objects(S, 0, 10, 1).stats

        assert refused == stats.filter_refusals


def test_index_of_another_node_helps_nobody() -> None:
    """Entries are a node's own: after a move the new owner's list is searched from its begin."""
    image = StreamImage.from_json(world(20))
    image = image.apply({"op": "move", "stream_id": S, "closed_at": 200, "node_id": 2})
    added = {"object_id": 99, "order_id": 1, "ranges": [[S, 200, 210]]}
    image = image.apply({"op": "add_object", "node_id": 2, "object": added})
    with StreamLookup(image, ImageReader(image)) as lookup:
        lookup.get_objects(S, 195, 200, 1)
        result = lookup.get_objects(S, 205, 210, 1)

    assert [99] == [one.object_id for one in result.objects]
    assert (1, 0, 0) == (result.stats.loads, result.stats.index_hits, result.stats.dead_entries)


def test_dead_entries_are_removed_and_the_next_lower_used() -> None:
    """An entry of an object that is gone is dropped, and the one below it is the position."""
    image = StreamImage.from_json(world(6))
    with StreamLookup(image, ImageReader(image), "index") as lookup:
        lookup.get_objects(S, 0, 60, 9)
        gone = {"op": "compact", "node_id": 1, "removed": [4, 5], "added_stream_objects": []}
        merged = {"object_id": 50, "order_id": 4, "ranges": [[S, 30, 50]]}
        lookup.update(image.apply({**gone, "added": [merged]}))
        result = lookup.get_objects(S, 45, 50, 1)

        assert [50] == [one.object_id for one in result.objects]
        assert (2, 2) == (result.stats.dead_entries, result.stats.skipped)
        assert (30, 50) == lookup.index.floor(S, 1, 49)


def test_entries_newer_than_the_image_stay() -> None:
    """A look-up on an older image does not take a newer object's entry for a dead one."""
    old = StreamImage.from_json(world(2))
    added = {"object_id": 50, "order_id": 50, "ranges": [[S, 20, 30]]}
    new = old.apply({"op": "add_object", "node_id": 1, "object": added})
    index = OffsetRangeIndex()
    held = new.objects[50]
    index.put_object(1, 50, held.streams, held.starts)

    class Reader(ImageReader):
        def load(self, object_id: int, image: StreamImage | None = None) -> ObjectRanges:
            lookup.update(new)
            return super().load(object_id, image)

    options = LookupOptions(batch=1)
    with StreamLookup(old, Reader(old), "index", index=index, options=options) as lookup:
        result = lookup.get_objects(S, 5, -1, 9)

        assert [1, 2] == [one.object_id for one in result.objects]
        assert 0 == result.stats.dead_entries
        assert (20, 50) == index.floor(S, 1, 25)
        assert 50 == lookup.get_objects(S, 25, -1, 9).objects[0].object_id


@pytest.mark.parametrize("strategy", ["partial", "bloom"])
def test_object_gone_while_it_is_loaded(strategy: Any) -> None:
    """An object that leaves the image while it is loaded leaves no filter and is not kept."""
    image = StreamImage.from_json(world(1))
    gone = {"op": "compact", "node_id": 1, "removed": [1], "added": []}

    class Reader(ImageReader):
        def load(self, object_id: int, image: StreamImage | None = None) -> ObjectRanges:
            assert image is not None
            lookup.update(image.apply({**gone, "added_stream_objects": []}))
            return super().load(object_id, image)

    options = LookupOptions(keep_objects=4)
    with StreamLookup(image, Reader(image), strategy, options=options) as lookup:
        result = lookup.get_objects(S, 0, 10, 1)

        assert [1] == [one.object_id for one in result.objects]
        assert 0 == len(lookup.filters)
        assert lookup._loader.get_cached(1) is None
        assert [] == lookup.get_objects(S, 0, 10, 1).objects


@pytest.mark.parametrize("preload", ["miss", "eager"])
def test_filters_built_by_others_between_looks(preload: Any) -> None:
    """A filter that comes up between two looks at an object makes no wave without loads."""
    answers = iter([None, True, True])

    class Late:
        """Has a filter from the second question on."""

        def refuses(self, object_id: int) -> bool | None:
            return next(answers)

    image, filters = StreamImage.from_json(world(1)), ObjectFilters()
    filters.probe = lambda stream: Late()  # type: ignore[method-assign,assignment,return-value]
    options = LookupOptions(preload=preload)
    with StreamLookup(image, ImageReader(image), filters=filters, options=options) as lookup:
        stats = lookup.get_objects(S, 0, 10, 1).stats

    assert (0, 0, 1) == (stats.loads, stats.waves, stats.filter_refusals)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_the_first_may_begin_before(strategy: Any) -> None:
    """In an image that nobody checked an overlapping object does not go on a chain."""
    image = StreamImage.from_json(world(1))
    added = {"object_id": 9, "order_id": 9, "ranges": [[S, 5, 15]]}
    event = {"op": "add_object", "node_id": 1, "object": added}
    image = image.apply(event, check=False)
    with StreamLookup(image, ImageReader(image), strategy) as lookup:
        assert [1] == [one.object_id for one in lookup.get_objects(S, 0, 20, 9).objects]
        assert [9] == [one.object_id for one in lookup.get_objects(S, 12, 20, 9).objects]


# -- the generator


def test_random_worlds_are_valid() -> None:
    """Every event of a generated world passes the checks, and its queries lie in its streams."""
    writer = StreamWriter(WorldShape(move_probability=0.05, base=2**60), seed=5)
    image = StreamImage.from_json(writer.initial_world())
    for event in writer.events(60):
        image = image.apply(event)
    again = StreamImage.from_json(image.to_json())

    assert 60 == len(again.objects) == sum(map(len, again.nodes.values()))
    assert any(len(stream.ranges) > 1 for stream in again.streams.values())
    assert any(again.stream_objects.values())
    for stream, start, end, limit in random_queries(again, 50):
        assert again.streams[stream].start_offset <= start <= again.streams[stream].end_offset
        assert end == -1 or end > start
        assert 1 <= limit <= 4


def test_false_positives_are_loads_that_a_filter_let_through() -> None:
    """A first load has no filter that could err; only a filter's wrong "perhaps" is counted."""
    with opened(world(1, 2, others_first=True), preloads=0) as lookup:
        first = lookup.get_objects(S, 0, 10, 1)

        assert 2 == first.stats.without_stream
        assert 0 == first.stats.filter_false_positives
        # A filter made of this stream takes an object that lacks it for one that has it.
        lookup.filters.drop([2])
        lookup.filters.build(2, np.array([S], np.int64))
        lookup.index.clear()
        second = lookup.get_objects(S, 0, 10, 1)

        assert 1 == second.stats.without_stream
        assert 1 == second.stats.filter_false_positives
        assert 1 == second.stats.filter_refusals
