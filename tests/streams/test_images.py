"""Stream images: what cannot be, what an object holds, and how events make the next image."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.streams import (
    STRATEGIES,
    ImageReader,
    LookupOptions,
    ObjectRanges,
    StreamImage,
    StreamLookup,
)
from bkstore.streams.image.streams_and_nodes import OwnershipRange, Stream
from tests.streams.small_world import S, world

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
        (_set("streams", 0, "start_offset", to=31), r"offsets 31\.\.30 are invalid"),
        (_set("streams", 1, "stream_id", to=S), r"streams\[1\]: stream 7 appears twice"),
        (_set("streams", 0, "ranges", to=[FIRST, RANGE]), "ranges 0 and 1 are out of order"),
        (_set("streams", 0, "ranges", to=[RANGE, FIRST]), "ranges 1 and 0 are out of order"),
        (_set("streams", 0, "ranges", 0, "start", to=-1), r"ranges\[0\]: start must be"),
        (_set("nodes", 0, "node_id", to="1"), "node_id must be a number"),
        (_set(*OBJECT, "object_id", to=1), r"nodes\[0\]: object 1 appears twice"),
        (_set(*OBJECT, "order_id", to=3), "objects 2 and 3 share order id 3"),
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
            r"stream_objects\[0\]: object 2 appears twice",
        ),
        (
            _set("stream_objects", to=[{"object_id": 9, "stream_id": S, "start": 30, "end": 20}]),
            "has its start after its end",
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
        Stream(S, 0, 0, (OwnershipRange(0, 0, -1, 0, 1),))


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
            "event add_object: object 1 already exists",
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
            "object 3 already exists",
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

    with pytest.raises(InvalidArgument, match="already begins at 10"):
        image.apply({**trimmed, "start_offset": 9})
    with pytest.raises(InvalidArgument, match="its last range begins at 20"):
        image.apply({"op": "move", "stream_id": S, "closed_at": 19, "node_id": 1})
