"""Stream worlds: streams that nodes take turns writing, as events and as images.

The shape follows the generator in AutoMQ's prototype (pull request 2710): slices of 20 to 200
records, most in objects that hold many streams, some in objects of their own, and streams that
sometimes move. Every world is valid: a stream's slices are disjoint and rise with the order ids.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bkstore.arguments import check_fields, integer, number, pair
from bkstore.streams.image.stream_image import StreamImage


@dataclass(frozen=True, kw_only=True)
class WorldShape:
    """Parameters of a world.

    `streams_per_object` streams are in an object, `slice_records` records in a slice (minimum,
    maximum). Shares of the slices: `stream_object_share` become stream objects, `lost_share` leave
    a hole. After a node's turn each of its streams moves with the probability `move_probability`.
    Offsets and ids begin at `base`.
    """

    nodes: int = 4
    streams: int = 12
    streams_per_object: tuple[int, int] = (1, 6)
    slice_records: tuple[int, int] = (20, 200)
    stream_object_share: float = 0.2
    lost_share: float = 0.05
    move_probability: float = 0.01
    base: int = 0

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_CHECKS = {
    "nodes": integer(1),
    "streams": integer(1),
    "streams_per_object": pair(integer(1)),
    "slice_records": pair(integer(1)),
    "stream_object_share": number(0, 1),
    "lost_share": number(0, 1),
    "move_probability": number(0, 1),
    "base": integer(),
}


class StreamWriter:
    """Writes to the streams of a world, as events in the format of the golden timelines.

    >>> writer = StreamWriter(WorldShape(streams=2, nodes=1, move_probability=0), seed=1)
    >>> sorted({event["op"] for event in writer.events(30)})
    ['add_object', 'add_stream_object']
    """

    def __init__(self, shape: WorldShape, seed: int = 0) -> None:
        """Give each stream to a random node; nothing is written yet. The same seed makes the same
        events."""
        self.shape = shape
        self._rng = random.Random(seed)  # noqa: S311
        # Stream ids, offsets and object ids all begin at `base`.
        stream_ids = range(shape.base, shape.base + shape.streams)
        self._node_of_stream = {stream: self._rng.randrange(shape.nodes) for stream in stream_ids}
        self._end_offsets = dict.fromkeys(self._node_of_stream, shape.base)
        self._last_object_id = shape.base

    def new_object_id(self) -> int:
        """Return an unused object id."""
        self._last_object_id += 1
        return self._last_object_id

    def initial_world(self) -> dict[str, Any]:
        """Return the state of all streams and nodes before the first event: one empty range a
        stream, and no object."""
        base = self.shape.base  # the first offset of each stream
        offsets = {"start_offset": base, "end_offset": base}
        first_range = {"range_index": 0, "epoch": 0, "start": base, "end": base}
        streams = [
            {"stream_id": stream, **offsets, "ranges": [{**first_range, "node_id": node}]}
            for stream, node in self._node_of_stream.items()
        ]
        nodes = [{"node_id": node, "objects": []} for node in range(self.shape.nodes)]
        return {"streams": streams, "nodes": nodes, "stream_objects": []}

    def events(self, objects: int) -> Iterator[dict[str, Any]]:
        """Yield events until `objects` stream set objects (of several streams) are added. In its
        turn a node writes a slice of some of its streams: to an object of that stream alone (a
        stream object), to its stream set object, or to none."""
        shape, rng = self.shape, self._rng
        written = 0
        while written < objects:
            node = rng.randrange(shape.nodes)
            owned = [stream for stream, owner in self._node_of_stream.items() if owner == node]
            count = min(len(owned), rng.randint(*shape.streams_per_object))
            slices = []
            for stream in sorted(rng.sample(owned, count)):
                start, end = self._write_slice(stream)
                if rng.random() < shape.stream_object_share:
                    stream_object = {"object_id": self.new_object_id(), "stream_id": stream}
                    stream_object |= {"start": start, "end": end}
                    yield self._new_event("add_stream_object", object=stream_object)
                elif rng.random() >= shape.lost_share:
                    slices.append([stream, start, end])
            if slices:
                written += 1
                object_id = self.new_object_id()
                set_object = {"object_id": object_id, "order_id": object_id, "ranges": slices}
                yield self._new_event("add_object", node_id=node, object=set_object)
            for stream in owned:
                if rng.random() < shape.move_probability:
                    yield self.move(stream, rng.randrange(shape.nodes))

    def move(self, stream: int, node: int) -> dict[str, Any]:
        """Move a stream to a node; return the event."""
        self._node_of_stream[stream], end = node, self._end_offsets[stream]
        return self._new_event("move", stream_id=stream, closed_at=end, node_id=node)

    def _write_slice(self, stream: int) -> tuple[int, int]:
        start = self._end_offsets[stream]
        self._end_offsets[stream] += self._rng.randint(*self.shape.slice_records)
        return start, self._end_offsets[stream]

    def _new_event(self, op: str, **fields: Any) -> dict[str, Any]:
        ends = {str(stream): end for stream, end in self._end_offsets.items()}
        return {"op": op, **fields, "end_offsets": ends}


def stream_image(shape: WorldShape, objects: int, seed: int = 0) -> StreamImage:
    """Return the image after `objects` stream set objects. O(objects^2), 0.3 s for 1000."""
    writer = StreamWriter(shape, seed)
    image = StreamImage.from_json(writer.initial_world())
    for event in writer.events(objects):
        image = image.apply(event, check=False)  # a `StreamWriter` yields valid events
    return image


def random_queries(
    image: StreamImage, count: int, seed: int = 0, limit: int = 4
) -> list[tuple[int, int, int, int]]:
    """Return (stream, start, end, limit) of random lookups; one in eight has no end (-1). Starts
    lie within the stream, ends up to 1000 records further; limits are 1 to `limit`."""
    rng = random.Random(seed)  # noqa: S311
    streams = list(image.streams.values())
    queries = []
    for _ in range(count if streams else 0):
        stream = rng.choice(streams)
        start = rng.randint(stream.start_offset, stream.end_offset)
        end = -1 if rng.random() < 0.125 else start + rng.randint(1, 1000)
        queries.append((stream.stream_id, start, end, rng.randint(1, limit)))
    return queries
