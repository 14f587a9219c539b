"""Random worlds against brute force: every strategy, images that change, compaction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bkstore.errors import InvalidArgument
from bkstore.streams import STRATEGIES, ImageReader, LookupOptions, StreamImage, StreamLookup
from bkstore.streams.image.compaction import compact_event
from bkstore.streams.image.compaction_limits import CompactionPlan, plan_compactions
from bkstore.testing.stream_worlds import StreamWriter, WorldShape, random_queries, stream_image
from tests.models.stream_lookups import Oracle

PLAIN = LookupOptions(workers=2)
EAGER = LookupOptions(preload="eager", growth="doubling", batch=2, workers=2)
WARY = LookupOptions(tail_first=True, cut_waves=True, keep_objects=6, growth="growing", workers=2)

shapes = st.builds(
    WorldShape,
    nodes=st.integers(1, 4),
    streams=st.integers(1, 9),
    streams_per_object=st.tuples(st.just(1), st.integers(1, 5)),
    slice_records=st.just((1, 9)),
    stream_object_share=st.sampled_from([0, 0.2, 0.5]),
    lost_share=st.sampled_from([0, 0.05, 0.3]),
    move_probability=st.sampled_from([0, 0.02, 0.2]),
    base=st.sampled_from([0, 2**62]),
)
lookups = st.builds(
    lambda strategy, options: (strategy, options),
    st.sampled_from(STRATEGIES),
    st.sampled_from([PLAIN, EAGER, WARY]),
)


def _ask(lookup: StreamLookup, oracle: Oracle, queries: list[Any]) -> None:
    for query in queries:
        result = lookup.get_objects(*query)

        assert oracle.answer(*query) == (result.status, [tuple(one) for one in result.objects])


@settings(max_examples=settings().max_examples // 2)
@given(shape=shapes, how=lookups, seed=st.integers(0, 2**20))
def test_worlds_with_events(shape: WorldShape, how: tuple[Any, Any], seed: int) -> None:
    """Objects come, streams move, lists are compacted, streams are trimmed: answers stay right."""
    writer = StreamWriter(shape, seed)
    image = StreamImage.from_json(writer.initial_world())
    strategy, options = how
    with StreamLookup(image, ImageReader(image), strategy, options=options) as lookup:
        for at, event in enumerate(writer.events(16)):
            image = image.apply(event)
            if at % 9 == 8:
                for plan in plan_compactions(image, per_node=5):
                    image = _compacted(image, plan, writer)
            if at % 13 == 12:
                image = _trimmed(image, shape.base + seed % shape.streams)
            lookup.update(image)
            if at % 6 == 5:
                _ask(lookup, Oracle(image.to_json()), random_queries(image, 6, seed + at))
        listed = set(image.node_of)

        assert set(lookup.filters.keys()) <= listed


def _compacted(image: StreamImage, plan: CompactionPlan, writer: StreamWriter) -> StreamImage:
    held = {one: image.objects[one] for one in plan.object_ids}
    event = compact_event(image, plan, held, writer.new_object_id)
    return image if event is None else image.apply(event)


def _trimmed(image: StreamImage, stream: int) -> StreamImage:
    """Trim a stream to the middle; its stream objects before that are gone."""
    found = image.streams[stream]
    start = (found.start_offset + found.end_offset) // 2
    gone = [one.object_id for one in image.stream_objects_of(stream) if one.end <= start]
    event = {"op": "trim", "stream_id": stream, "start_offset": start}
    return image.apply({**event, "removed_stream_objects": gone})


@settings(max_examples=settings().max_examples // 2)
@given(shape=shapes, seed=st.integers(0, 2**20), streams=st.sampled_from([3, 20_000]))
def test_compaction_changes_no_coverage(shape: WorldShape, seed: int, streams: int) -> None:
    """From every offset of every stream a chain reaches as far after a compaction as before."""
    writer = StreamWriter(shape, seed)
    image = StreamImage.from_json(writer.initial_world())
    for event in writer.events(12):
        image = image.apply(event, check=False)
    before, count = Oracle(image.to_json()), sum(map(len, image.nodes.values()))
    for plan in plan_compactions(image, per_node=3, per_cluster=5, max_objects=6):
        held = {one: image.objects[one] for one in plan.object_ids}
        merged = compact_event(image, plan, held, writer.new_object_id, max_streams=streams)
        if merged is not None:
            assert all(len(one["ranges"]) <= streams for one in merged["added"])
            image = image.apply(merged)
    after = Oracle(image.to_json())

    assert sum(map(len, image.nodes.values())) < count or streams == 3
    for stream, found in image.streams.items():
        for offset in range(shape.base, found.end_offset + 2):
            assert before.covered_from(stream, offset) == after.covered_from(stream, offset)


@given(st.data())
def test_compaction_of_slices_that_others_own(data: st.DataObject) -> None:
    """Slices at offsets that other nodes own, as after a late upload, come to light nowhere.

    Ranges of the stream and slices of nodes are drawn apart from each other.
    """
    cuts = sorted(data.draw(st.sets(st.integers(1, 39), max_size=5)))
    owners = data.draw(st.lists(st.integers(1, 2), min_size=6, max_size=6))
    ends = sorted(data.draw(st.sets(st.integers(1, 40), min_size=2, max_size=12)))
    kinds = data.draw(st.lists(st.sampled_from([0, 1, 1, 1, 2]), min_size=12, max_size=12))
    ranges = [
        {"range_index": at, "epoch": at, "start": start, "end": end, "node_id": owner}
        for at, (start, end, owner) in enumerate(zip([0, *cuts], [*cuts, 40], owners))
    ]
    image = StreamImage.from_json(
        {
            "streams": [{"stream_id": 7, "start_offset": 0, "end_offset": 40, "ranges": ranges}],
            "nodes": [
                {
                    "node_id": node,
                    "objects": [
                        {"object_id": end, "order_id": end, "ranges": [[7, start, end]]}
                        for start, end, kind in zip([0, *ends], ends, kinds)
                        if kind == node
                    ],
                }
                for node in (1, 2)
            ],
            "stream_objects": [],
        }
    )
    before, ids = Oracle(image.to_json()), iter(range(100, 200))
    for plan in plan_compactions(image, per_node=1, target=1):
        held = {one: image.objects[one] for one in plan.object_ids}
        event = compact_event(image, plan, held, lambda: next(ids))
        image = image if event is None else image.apply(event)
    after = Oracle(image.to_json())

    for offset in range(42):
        assert before.covered_from(7, offset) == after.covered_from(7, offset), offset


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("late", [False, True])
def test_large_world(strategy: Any, late: bool) -> None:
    """Ten nodes, a fifth of the slices alone, streams that move: sixty look-ups by limit 4."""
    image = stream_image(
        WorldShape(nodes=10, streams=30, stream_object_share=0.2, lost_share=0), 120, seed=9
    )
    oracle = Oracle(image.to_json())
    latency = (lambda one: 0.0002 * (one % 4 == 0)) if late else 0.0
    reader = ImageReader(image, latency=latency)
    with StreamLookup(image, reader, strategy) as lookup:
        _ask(lookup, oracle, random_queries(image, 60, seed=10))


# -- which objects are compacted


def _lists(*counts: int) -> StreamImage:
    nodes = []
    for node, count in enumerate(counts):
        ids = range(1000 * node, 1000 * node + count)
        held = [{"object_id": one, "order_id": one, "ranges": []} for one in ids]
        nodes.append({"node_id": node, "objects": held})
    return StreamImage.from_json({"streams": [], "nodes": nodes, "stream_objects": []})


def _left(counts: list[int], plans: list[CompactionPlan]) -> list[int]:
    left = list(counts)
    for plan in plans:
        left[plan.node_id] -= len(plan.object_ids) - 1
    return left


@pytest.mark.parametrize(
    ("counts", "limits", "left"),
    [
        ([10, 9], {"per_node": 10}, [10, 9]),
        ([11, 9], {"per_node": 10}, [5, 9]),
        ([11, 9], {"per_node": 10, "target": 1}, [10, 9]),
        ([2, 9], {"per_node": 1}, [1, 1]),
        ([30, 9, 0], {"per_cluster": 39}, [30, 9, 0]),
        ([30, 9, 0], {"per_cluster": 38}, [10, 9, 0]),
        ([30, 30, 3], {"per_cluster": 40}, [8, 8, 3]),
        ([30, 30, 3], {"per_cluster": 2}, [1, 1, 1]),
        ([30, 5], {"per_node": 20, "per_cluster": 12}, [3, 3]),
        ([30], {"per_node": 4, "max_objects": 5}, [6]),
        ([30], {}, [30]),
    ],
)
def test_plans(counts: list[int], limits: dict[str, Any], left: list[int]) -> None:
    """A list above its limit is brought to half of it, the longest first for the cluster."""
    image = _lists(*counts)
    plans = plan_compactions(image, **limits)

    assert left == _left(counts, plans)
    for plan in plans:
        ids = image.nodes[plan.node_id].object_ids
        first = ids.index(plan.object_ids[0])

        assert plan.object_ids == ids[first : first + len(plan.object_ids)]
        assert 2 <= len(plan.object_ids) <= limits.get("max_objects", 500)
    sizes = [len(plan.object_ids) for plan in plans if plan.node_id == 0]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize(
    "limits", [{"per_node": 0}, {"per_cluster": 0}, {"target": 0}, {"max_objects": 1}], ids=str
)
def test_bad_limits(limits: dict[str, Any]) -> None:
    """Limits that leave nothing are refused."""
    with pytest.raises(InvalidArgument, match=next(iter(limits))):
        plan_compactions(_lists(3), **limits)


# -- what becomes of them


RANGES = {
    1: [[5, 0, 10], [7, 0, 10], [8, 0, 10], [9, 0, 4]],
    2: [[5, 10, 20], [7, 12, 20], [9, 4, 9]],
    3: [[5, 20, 30], [8, 10, 15], [9, 9, 12]],
}


def _small() -> StreamImage:
    owned = {"range_index": 0, "epoch": 0, "start": 0, "end": 0, "node_id": 1}
    stream = {"start_offset": 0, "end_offset": 30, "ranges": [owned]}
    objects = [{"object_id": at, "order_id": at + 40, "ranges": RANGES[at]} for at in RANGES]
    image = {
        "streams": [{"stream_id": one, **stream} for one in (5, 7, 8, 9)],
        "nodes": [{"node_id": 1, "objects": objects}],
        "stream_objects": [{"object_id": 4, "stream_id": 7, "start": 10, "end": 12}],
    }
    trim = {"op": "trim", "stream_id": 9, "start_offset": 4, "removed_stream_objects": []}
    return StreamImage.from_json(image).apply(trim)


def test_compact_event() -> None:
    """Joined slices are folded, pieces around a stream object set free, trimmed ones left out."""
    image, ids = _small(), iter((50, 51, 52))
    (plan,) = plan_compactions(image, per_node=2)
    event = compact_event(image, plan, image.objects, lambda: next(ids))

    assert CompactionPlan(1, (1, 2, 3)) == plan
    assert {
        "op": "compact",
        "node_id": 1,
        "removed": [1, 2, 3],
        "added": [
            {"object_id": 50, "order_id": 41, "ranges": [[5, 0, 30], [8, 0, 15], [9, 4, 12]]}
        ],
        "added_stream_objects": [
            {"object_id": 51, "stream_id": 7, "start": 0, "end": 10},
            {"object_id": 52, "stream_id": 7, "start": 12, "end": 20},
        ],
        "end_offsets": {},
    } == event

    after = image.apply(event)

    assert ((41, 50),) == after.node(1).order_and_object_ids
    assert [4, 51, 52] == sorted(one.object_id for one in after.stream_objects_of(7))


def test_filters_and_index_follow() -> None:
    """After a compaction the filters of the old objects are gone, and the new one is found."""
    image = _small()
    plan = CompactionPlan(1, (1, 2, 3))
    with StreamLookup(image, ImageReader(image)) as lookup:
        lookup.get_objects(5, 0, 30, 9)
        assert {1, 2, 3} == set(lookup.filters.keys())

        event = compact_event(image, plan, image.objects, iter(range(50, 60)).__next__)
        assert event is not None
        lookup.update(image.apply(event))
        assert [] == lookup.filters.keys()

        result = lookup.get_objects(5, 25, 30, 9)
        assert [("SSO", 50, 0, 30)] == [tuple(one) for one in result.objects]
        assert 3 == result.stats.dead_entries
        assert [50] == lookup.filters.keys()
        assert (0, 50) == lookup.index.floor(5, 1, 29)


def test_too_many_streams() -> None:
    """What has too many streams together is taken in runs; None where no two fit."""
    image, plan = _small(), CompactionPlan(1, (1, 2, 3))
    ids = iter(range(50, 90)).__next__
    runs = {
        most: compact_event(image, plan, image.objects, ids, max_streams=most) for most in (2, 3, 4)
    }

    assert runs[2] is None
    assert runs[3] is None
    assert runs[4] is not None
    assert [1, 2, 3] == runs[4]["removed"]

    shorter = CompactionPlan(1, (2, 3))
    assert compact_event(image, shorter, image.objects, ids, max_streams=3) is None


def test_nothing_is_left() -> None:
    """Objects whose slices are all trimmed or set free leave no object behind."""
    owned = {"range_index": 0, "epoch": 0, "start": 0, "end": 0, "node_id": 1}
    stream = {"stream_id": 7, "start_offset": 10, "end_offset": 30, "ranges": [owned]}
    objects = [
        {"object_id": at, "order_id": at, "ranges": [[7, start, start + 5]]}
        for at, start in enumerate((0, 5, 10, 20))
    ]
    image = StreamImage.from_json(
        {"streams": [stream], "nodes": [{"node_id": 1, "objects": objects}], "stream_objects": []}
    )
    trimmed = compact_event(image, CompactionPlan(1, (0, 1)), image.objects, int)
    freed = compact_event(image, CompactionPlan(1, (2, 3)), image.objects, iter((8, 9)).__next__)

    assert trimmed is not None
    assert freed is not None
    assert ([], []) == (trimmed["added"], trimmed["added_stream_objects"])
    assert ([], [8, 9]) == (freed["added"], [o["object_id"] for o in freed["added_stream_objects"]])
    assert 0 == len(image.apply(trimmed).apply(freed).node(1))


@pytest.mark.parametrize("ids", [(), (1, 3), (3, 2), (9,), (2, 3, 4)], ids=str)
def test_plans_out_of_date(ids: tuple[int, ...]) -> None:
    """Objects that are no longer neighbors on the node are refused."""
    image = _small()
    with pytest.raises(InvalidArgument, match="are no longer neighbors on node 1"):
        compact_event(image, CompactionPlan(1, ids), image.objects, int)


def test_objects_not_loaded() -> None:
    """An object that was not loaded is refused by name."""
    image = _small()
    with pytest.raises(InvalidArgument, match="object 2 is to be compacted, but was not loaded"):
        compact_event(image, CompactionPlan(1, (1, 2)), {1: image.objects[1]}, int)
