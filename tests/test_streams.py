"""Stream look-ups, part by part: images, events, sparse index, options, failures, compaction."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
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
from bkstore.streams.chain import check_answer
from bkstore.streams.model import Stream, StreamRange
from bkstore.streams.sparse import ENTRY_BYTES, SparseRangeIndex
from bkstore.testing.streams import StreamWriter, WorldShape, random_queries

S = 7


def world(count: int = 3, other: int = 0, others_first: bool = False) -> dict[str, Any]:
    """Return stream 7 in `count` objects of 10 records, ids from 1, and `other` without it."""
    size, node = 10, 1
    objects = [
        {"object_id": at + 1, "order_id": at + 1, "ranges": [[S, at * size, (at + 1) * size]]}
        for at in range(count)
    ]
    objects += [
        {"object_id": count + at + 1, "order_id": count + at + 1, "ranges": [[8, at, at + 1]]}
        for at in range(other)
    ]
    if others_first:
        for one in objects:
            one["order_id"] += other if one["object_id"] <= count else -count
    owned = {"range_index": 0, "epoch": 0, "start": 0, "end": 0, "node_id": node}
    return {
        "streams": [
            {"stream_id": S, "start_offset": 0, "end_offset": count * size, "ranges": [owned]},
            {"stream_id": 8, "start_offset": 0, "end_offset": other, "ranges": [owned]},
        ],
        "nodes": [{"node_id": node, "objects": objects}],
        "stream_objects": [],
    }


def opened(document: dict[str, Any], strategy: Any = "bloom", **options: Any) -> StreamLookup:
    """Return a look-up over a world."""
    image = StreamImage.from_json(document)
    return StreamLookup(image, ImageReader(image), strategy, options=LookupOptions(**options))


def trace(stats: QueryStats) -> str:
    """Return the waves as text."""
    return " ".join(map(str, stats.trace))


# -- images that cannot be


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


OBJECT = ("nodes", 0, "objects", 1)
RANGE = {"range_index": 1, "epoch": 1, "start": 5, "end": 5, "node_id": 2}
FIRST = {"range_index": 0, "epoch": 0, "start": 0, "end": 9, "node_id": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set("streams", to=None), "streams must be a list"),
        (_set("nodes", to={}), "nodes must be a list"),
        (_set("streams", 0, to=7), r"streams\[0\]: must be an object, not int"),
        (_set("streams", 0, "stream_id", to=-7), r"streams\[0\]: stream_id .* not -7"),
        (_set("streams", 0, "end_offset", to=2**63), "end_offset must be a number"),
        (_set("streams", 0, "end_offset", to=1.5), "end_offset must be a number"),
        (_set("streams", 0, "start_offset", to=31), r"offsets 31\.\.30 cannot be"),
        (_set("streams", 1, "stream_id", to=S), r"streams\[1\]: stream 7 is there twice"),
        (_set("streams", 0, "ranges", to=[FIRST, RANGE]), "ranges 0 and 1 are out of order"),
        (_set("streams", 0, "ranges", to=[RANGE, FIRST]), "ranges 1 and 0 are out of order"),
        (_set("streams", 0, "ranges", 0, "start", to=-1), r"ranges\[0\]: start must be"),
        (_set("nodes", 0, "node_id", to="1"), "node_id must be a number"),
        (_set(*OBJECT, "object_id", to=1), r"nodes\[0\]: object 1 is there twice"),
        (_set(*OBJECT, "order_id", to=3), "objects 2 and 3 have one order id, 3"),
        (_set(*OBJECT, "order_id", to=9), "do not rise with the order ids"),
        (_set(*OBJECT, "ranges", to=[[S, 5, 15]]), "stream 7: slices .* of object 1 .* overlap"),
        (_set(*OBJECT, "ranges", to=[[S, 10, 15], [S, 14, 20]]), "object 2: stream 7: .* overlap"),
        (_set(*OBJECT, "ranges", to=[[S, 20, 10]]), r"object 2: range \[7, 20, 10\] has its start"),
        (_set(*OBJECT, "ranges", to=[[S, -1, 10]]), "has a negative number"),
        (_set(*OBJECT, "ranges", to=[[S, 1]]), r"ranges must be \[stream, start, end\]"),
        (_set(*OBJECT, "ranges", to=[[S, 1, 2], [S]]), r"ranges must be \[stream, start, end\]"),
        (_set(*OBJECT, "ranges", to=[[S, 1.5, 20]]), r"ranges must be \[stream, start, end\]"),
        (_set(*OBJECT, "ranges", to=[["7", 1, 20]]), r"ranges must be \[stream, start, end\]"),
        (_set(*OBJECT, "ranges", to=[[S, 1, 2**63]]), r"ranges must be \[stream, start, end\]"),
        (
            _set("stream_objects", to=[{"object_id": 2, "stream_id": S, "start": 30, "end": 40}]),
            r"stream_objects\[0\]: object 2 is there twice",
        ),
        (
            _set("stream_objects", to=[{"object_id": 9, "stream_id": S, "start": 30, "end": 20}]),
            "has its start behind its end",
        ),
        (
            _set("stream_objects", to=[{"object_id": 9, "stream_id": S, "start": 29, "end": 40}]),
            "of object 9 overlap",
        ),
    ],
)
def test_bad_image(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    """What a JSON image lacks, or has negative, out of order or twice, is named with its place."""
    document = world()
    change(document)

    with pytest.raises(InvalidArgument, match=reason):
        StreamImage.from_json(document)


@pytest.mark.parametrize("document", [None, [], 7, "x", {}])
def test_not_an_image(document: Any) -> None:
    """JSON of another kind is refused."""
    with pytest.raises(InvalidArgument):
        StreamImage.from_json(document)


def test_negative_range_start() -> None:
    """The last range is open, but it begins somewhere."""
    with pytest.raises(InvalidArgument, match="range 0 begins at -1"):
        Stream(S, 0, 0, (StreamRange(0, 0, -1, 0, 1),))


def test_object_table_lacks_an_object() -> None:
    """An object that is listed and not in the table fails the look-up that needs it, by name."""
    full = StreamImage.from_json(world(3))
    image = StreamImage(
        full.streams,
        full.nodes,
        full.stream_objects,
        {k: v for k, v in full.objects.items() if k != 2},
    )
    with StreamLookup(
        image, ImageReader(image), "partial", options=LookupOptions(batch=1)
    ) as lookup:
        assert [1] == [one.object_id for one in lookup.get_objects(S, 0, 10, 9).objects]
        with pytest.raises(CorruptionError, match="object 2 is listed, but not in"):
            lookup.get_objects(S, 0, 20, 9)
    with pytest.raises(InvalidArgument, match="object 2 is listed, but not in"):
        image.to_json()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_object_table_lacks_all(strategy: Any) -> None:
    """With an empty object table every look-up that loads fails, under every strategy."""
    full = StreamImage.from_json(world(3))
    image = StreamImage(full.streams, full.nodes)
    with StreamLookup(image, ImageReader(image), strategy) as lookup:
        with pytest.raises(CorruptionError, match=r"object [123] is listed, but not in"):
            lookup.get_objects(S, 0, 20, 9)
        assert [] == lookup.get_objects(S, 5, 5, 9).objects


# -- ranges of an object


def test_ranges_fold() -> None:
    """Blocks of one stream are folded to first start and last end; empty ones hold nothing."""
    held = ObjectRanges.of([(9, 5, 5), (7, 40, 60), (3, 0, 10), (7, 10, 20)])

    assert [[3, 0, 10], [7, 10, 60]] == held.rows()
    assert (10, 60) == held.slice_of(7)
    assert held.slice_of(9) is None
    assert held.slice_of(4) is None
    assert 2 == len(held)
    assert 0 == len(ObjectRanges.of([]))
    assert held == ObjectRanges.of(held.rows())
    assert held != ObjectRanges.of([(7, 10, 60)])


# -- events


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (7, "unknown event None"),
        ({"op": ["trim"]}, "unknown event"),
        ({"op": "burn"}, "unknown event 'burn': one of add_object"),
        ({"op": "add_object", "node_id": 1}, "event add_object: must be an object"),
        (
            {
                "op": "add_object",
                "node_id": 1,
                "object": {"object_id": 1, "order_id": 9, "ranges": []},
            },
            "event add_object: object 1 is there already",
        ),
        (
            {
                "op": "add_object",
                "node_id": 1,
                "object": {"object_id": 9, "order_id": 9, "ranges": [[S, 25, 35]]},
            },
            r"event add_object: stream 7: slices \[20, 30\) of object 3 and .* overlap",
        ),
        (
            {
                "op": "add_object",
                "node_id": 1,
                "object": {"object_id": 9, "order_id": 0, "ranges": [[S, 30, 35]]},
            },
            "do not rise with the order ids",
        ),
        (
            {
                "op": "add_stream_object",
                "object": {"object_id": 3, "stream_id": S, "start": 30, "end": 40},
            },
            "object 3 is there already",
        ),
        (
            {
                "op": "compact",
                "node_id": 1,
                "removed": [4],
                "added": [],
                "added_stream_objects": [],
            },
            "event compact: node 1 has no object 4",
        ),
        (
            {"op": "compact", "node_id": 1, "removed": [[1]], "added": []},
            r"removed\[0\] must be a number",
        ),
        ({"op": "trim", "stream_id": 9}, "event trim: no stream 9"),
        (
            {"op": "trim", "stream_id": S, "start_offset": 5, "removed_stream_objects": [1]},
            "stream 7 has no object 1",
        ),
        (
            {"op": "trim", "stream_id": S, "start_offset": 5, "removed_stream_objects": [{}]},
            "must be a number",
        ),
        ({"op": "move", "stream_id": S, "closed_at": -1, "node_id": 2}, "closed_at must be"),
        (
            {"op": "move", "stream_id": S, "closed_at": 9, "node_id": 2, "end_offsets": {"²": 4}},
            "no stream -1",
        ),
        (
            {"op": "move", "stream_id": S, "closed_at": 9, "node_id": 2, "end_offsets": [1]},
            "end_offsets must be an object",
        ),
    ],
)
def test_bad_event(event: Any, reason: str) -> None:
    """An event that cannot be is refused by name, and the image stays as it was."""
    image = StreamImage.from_json(world())
    before = copy.deepcopy(image.to_json())
    with pytest.raises(InvalidArgument, match=reason):
        image.apply(event)

    assert before == image.to_json()


def test_trim_and_move() -> None:
    """Below the start a look-up is invalid; behind a move only the new owner's objects count."""
    image = StreamImage.from_json(world(3))
    image = image.apply({"op": "move", "stream_id": S, "closed_at": 20, "node_id": 2})
    trimmed = {"op": "trim", "stream_id": S, "start_offset": 10, "removed_stream_objects": []}
    image = image.apply(trimmed)
    with StreamLookup(image, ImageReader(image)) as lookup:
        assert "invalid" == lookup.get_objects(S, 9, 20, 9).status
        assert [2] == [one.object_id for one in lookup.get_objects(S, 10, -1, 9).objects]
        assert [] == lookup.get_objects(S, 20, -1, 9).objects

    with pytest.raises(InvalidArgument, match="begins at 10 already"):
        image.apply({**trimmed, "start_offset": 9})
    with pytest.raises(InvalidArgument, match="its last range begins at 20"):
        image.apply({"op": "move", "stream_id": S, "closed_at": 19, "node_id": 1})


# -- the sparse index


def _sparse(room: int) -> SparseRangeIndex:
    return SparseRangeIndex(room * ENTRY_BYTES)


def _known(index: SparseRangeIndex, stream: int, starts: range) -> list[int]:
    """Return the starts that are known, an object being called after its start."""
    found = {index.floor(stream, start) for start in starts}
    return sorted(one for one in found if one is not None)


def test_sparse_eviction_spares_the_ends() -> None:
    """The middle of the longest-served streams goes first, first and last three stay."""
    index = _sparse(16)
    for at in range(10):
        index.add(at, ObjectRanges.of([(7, at, at + 1), (8, at, at + 1)]))

    assert 16 == index.entries
    assert 4 == index.evictions
    for stream in (7, 8):
        known = _known(index, stream, range(10))

        assert 8 == len(known)
        assert {0, 1, 2, 7, 8, 9} <= set(known)


def test_sparse_eviction_spares_short_streams() -> None:
    """A stream with a few entries keeps them while another has more than its ends."""
    index = _sparse(8)
    index.add(50, ObjectRanges.of([(8, 0, 1)]))
    for at in range(12):
        index.add(at, ObjectRanges.of([(7, at, at + 1)]))

    assert 5 == index.evictions
    assert 50 == index.floor(8, 0)
    assert [0, 1, 2, 9, 10, 11] == [
        at for at in _known(index, 7, range(12)) if at not in range(3, 9)
    ]


def test_sparse_eviction_takes_ends_when_nothing_else_is_left() -> None:
    """Short streams lose entries only once no stream has more than its ends."""
    index = _sparse(12)
    for stream in (7, 8):
        for at in range(6):
            index.add(at, ObjectRanges.of([(stream, at, at + 1)]))

    assert 0 == index.evictions

    index.add(0, ObjectRanges.of([(9, 0, 1)]))

    assert 12 == index.entries
    assert 1 == index.evictions
    assert 0 == index.floor(9, 5)
    assert [0, 1, 2, 4, 5] == _known(index, 7, range(6))
    assert list(range(6)) == _known(index, 8, range(6))


def test_sparse_with_room_for_one() -> None:
    """With room for one entry the newest stream's is there."""
    index = _sparse(1)
    for stream in range(5):
        index.add(stream, ObjectRanges.of([(stream, 0, 1)]))

    assert [None] * 4 + [4] == [index.floor(stream, 0) for stream in range(5)]
    with pytest.raises(InvalidArgument, match="hold no entry"):
        SparseRangeIndex(ENTRY_BYTES - 1)


def test_sparse_removal() -> None:
    """Objects that are gone leave no entry; a start that is taken again names the new object."""
    index = _sparse(100)
    for at in range(4):
        index.add(at, ObjectRanges.of([(7, at, at + 1)]))
    index.remove([1, 2, 99])

    assert 2 == index.entries
    assert 0 == index.floor(7, 2)

    index.add(5, ObjectRanges.of([(7, 0, 3)]))

    assert 5 == index.floor(7, 2)
    index.remove([5, 3])
    assert 0 == index.entries
    assert index.floor(7, 9) is None


# -- options


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": 2.5},
        {"spread": 0},
        {"tail": 0},
        {"preloads": -1},
        {"keep_objects": -1},
        {"workers": 0},
        {"load_timeout": 0},
        {"growth": "fast"},
        {"preload": "late"},
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any]) -> None:
    """Settings that make no wave, or that nobody knows, are refused."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        LookupOptions(**options)


def test_unknown_strategy() -> None:
    """A strategy that nobody knows is refused with the list."""
    with pytest.raises(InvalidArgument, match="unknown strategy 'magic': one of load-all"):
        opened(world(), "magic")


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        ("fixed", [2] * 20),
        ("growing", [2] * 5 + [3] * 5 + [4] * 3 + [3]),
        ("doubling", [2, 4, 8, 16, 10]),
    ],
)
def test_growth(growth: Any, expected: list[int]) -> None:
    """Waves stay, grow by one after every five, or double while the place is not found."""
    document = world(1, other=39)
    document["nodes"][0]["objects"][0]["order_id"] = 99  # the wanted one is the last of 40
    with opened(document, "partial", batch=2, growth=growth) as lookup:
        stats = lookup.get_objects(S, 0, 10, 1).stats

    assert expected == [len(wave.searched) for wave in stats.trace]


def test_doubling_falls_back_when_the_place_is_found() -> None:
    """Once the place is found the next wave has the size of the first again."""
    with opened(world(9, 5, others_first=True), "partial", batch=2, growth="doubling") as lookup:
        stats = lookup.get_objects(S, 0, 90, 9).stats

    assert "[10,11] [12,13,14,1] [2,3] [4,5] [6,7] [8,9]" == trace(stats)


def test_tail_first() -> None:
    """A tail read that begins with the tail preload needs that wave alone."""
    with opened(world(20), "preload", tail_first=True) as lookup:
        assert "P[16,17,18,19,20]" == trace(lookup.get_objects(S, 195, -1, 4).stats)
        assert "[1,2,3,4,5]" == trace(lookup.get_objects(S, 5, 9, 4).stats)


def test_tail_preloads_go_back() -> None:
    """Tail preloads take the last five, then the five before, four times at most."""
    document = world(1, other=60)
    document["nodes"][0]["objects"][0]["order_id"] = 36  # in the middle, where no preload comes
    document["nodes"][0]["objects"][35] |= {"order_id": 1, "ranges": []}
    with opened(document, "preload") as lookup:
        stats = lookup.get_objects(S, 0, -1, 1).stats

    ahead = [wave.preloaded for wave in stats.trace if wave.preloaded]
    assert [tuple(range(at, at + 5)) for at in (57, 52, 47, 42)] == ahead


@pytest.mark.parametrize(("cut", "wave"), [(False, "[6,7,9,10,11]"), (True, "[6,7]")])
def test_cut_waves(cut: bool, wave: str) -> None:
    """A wave may end before an object that is known to begin behind the offset."""
    with opened(world(20), "preload", cut_waves=cut) as lookup:
        found = lookup.get_objects(S, 65, 70, 1)

    assert [7] == [one.object_id for one in found.objects]
    assert f"[1,2,3,4,5] P[8,12,16,20] {wave}" == trace(found.stats)


def test_keep_objects() -> None:
    """Objects that are kept are not loaded again, up to their number, until they are gone."""
    image = StreamImage.from_json(world(4))
    reader = ImageReader(image)
    options = LookupOptions(keep_objects=3)
    with StreamLookup(image, reader, "partial", options=options) as lookup:
        assert 4 == lookup.get_objects(S, 0, 40, 9).stats.loads
        again = lookup.get_objects(S, 15, 40, 9).stats

        assert (1, 3) == (again.loads, again.kept)

        removed = {"op": "compact", "node_id": 1, "removed": [3, 4], "added": []}
        image = image.apply({**removed, "added_stream_objects": []})
        lookup.update(image)

        assert [None] * 2 == [lookup._loader.kept(one) for one in (3, 4)]
    assert reader.loads == 5


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
        assert not {12, 16, 20} & set(lookup.filters.filters.keys())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failed_load(strategy: Any) -> None:
    """A failed load fails the look-up, leaves nothing behind, and the next look-up tries again."""
    fails = {2}
    with _failing(world(3), fails, strategy, keep_objects=9) as lookup:
        for _ in range(2):
            with pytest.raises(LoadFailed, match="object 2"):
                lookup.get_objects(S, 0, 30, 9)
        assert 2 not in lookup.filters.filters
        assert lookup.index.floor(S, 1, 15) in (None, (0, 1))
        assert lookup._loader.kept(2) is None
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

        assert [None] * 3 == [lookup._loader.kept(one) for one in (1, 2, 3)]


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
        ([("SSO", 1, 6, 9)], r"object 1 with \[6, 9\) does not go on at 5"),
        ([("SSO", 1, 0, 5)], "does not go on at 5"),
        ([("SSO", 1, 5, 9), ("SSO", 2, 10, 12)], r"object 2 .* does not go on at 9"),
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
        assert 0 == len(lookup.filters.filters)
        assert lookup._loader.kept(1) is None
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
    writer = StreamWriter(WorldShape(moved=0.05, base=2**60), seed=5)
    image = StreamImage.from_json(writer.initial())
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
