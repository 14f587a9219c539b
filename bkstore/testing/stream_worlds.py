"""Stream worlds: streams that nodes write in turns, as events and as images.

The shape is that of the generator in AutoMQ's prototype (pull request 2710): slices of 20 to 200
records, most in objects that hold many streams, some in objects of their own, streams that move
now and then. Every world is valid: slices of a stream are disjoint and rise with the order ids.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bkstore.arguments import check_fields, number, pair, whole
from bkstore.streams.image.stream_image import StreamImage


@dataclass(frozen=True, kw_only=True)
class WorldShape:
    """How a world is made; shares are of slices.

    `per_object` streams are in an object, `slice_records` records in a slice (from, to).
    `alone` slices become stream objects, `lost` ones leave a hole, behind `moved` ones the
    stream goes to another node. Offsets and ids begin at `base`.
    """

    nodes: int = 4
    streams: int = 12
    per_object: tuple[int, int] = (1, 6)
    slice_records: tuple[int, int] = (20, 200)
    alone: float = 0.2
    lost: float = 0.05
    moved: float = 0.01
    base: int = 0

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_CHECKS = {
    "nodes": whole(1),
    "streams": whole(1),
    "per_object": pair(whole(1)),
    "slice_records": pair(whole(1)),
    "alone": number(0, 1),
    "lost": number(0, 1),
    "moved": number(0, 1),
    "base": whole(),
}


class StreamWriter:
    """Writes to the streams of a world, one event at a time, as the golden timelines have them.

    >>> writer = StreamWriter(WorldShape(streams=2, nodes=1, moved=0), seed=1)
    >>> sorted({event["op"] for event in writer.events(30)})
    ['add_object', 'add_stream_object']
    """

    def __init__(self, shape: WorldShape, seed: int = 0) -> None:
        self.shape = shape
        self._random = random.Random(seed)  # noqa: S311
        self._owner = {
            shape.base + one: self._random.randrange(shape.nodes) for one in range(shape.streams)
        }
        self._end = dict.fromkeys(self._owner, shape.base)
        self._next_id = shape.base

    def new_id(self) -> int:
        """Return an object id that was not given out yet."""
        self._next_id += 1
        return self._next_id

    def initial(self) -> dict[str, Any]:
        """Return the world without objects, as it is before the first event."""
        base = self.shape.base
        first = {"range_index": 0, "epoch": 0, "start": base, "end": base}
        return {
            "streams": [
                {
                    "stream_id": stream,
                    "start_offset": base,
                    "end_offset": base,
                    "ranges": [{**first, "node_id": node}],
                }
                for stream, node in self._owner.items()
            ],
            "nodes": [{"node_id": node, "objects": []} for node in range(self.shape.nodes)],
            "stream_objects": [],
        }

    def events(self, objects: int) -> Iterator[dict[str, Any]]:
        """Yield the events that add so many stream set objects, and what comes between them."""
        shape, pick = self.shape, self._random
        written = 0
        while written < objects:
            node = pick.randrange(shape.nodes)
            owned = [stream for stream, owner in self._owner.items() if owner == node]
            count = min(len(owned), pick.randint(*shape.per_object))
            slices = []
            for stream in sorted(pick.sample(owned, count)):
                start, end = self._slice(stream)
                if pick.random() < shape.alone:
                    one = {"object_id": self.new_id(), "stream_id": stream}
                    one |= {"start": start, "end": end}
                    yield self._event("add_stream_object", object=one)
                elif pick.random() >= shape.lost:
                    slices.append([stream, start, end])
            if slices:
                written += 1
                object_id = self.new_id()
                made = {"object_id": object_id, "order_id": object_id, "ranges": slices}
                yield self._event("add_object", node_id=node, object=made)
            for stream in owned:
                if pick.random() < shape.moved:
                    yield self.move(stream, pick.randrange(shape.nodes))

    def move(self, stream: int, node: int) -> dict[str, Any]:
        """Return the event that gives a stream to a node."""
        self._owner[stream] = node
        return self._event("move", stream_id=stream, closed_at=self._end[stream], node_id=node)

    def _slice(self, stream: int) -> tuple[int, int]:
        start = self._end[stream]
        self._end[stream] += self._random.randint(*self.shape.slice_records)
        return start, self._end[stream]

    def _event(self, op: str, **fields: Any) -> dict[str, Any]:
        ends = {str(stream): end for stream, end in self._end.items()}
        return {"op": op, **fields, "end_offsets": ends}


def stream_image(shape: WorldShape, objects: int, seed: int = 0) -> StreamImage:
    """Return the image after so many stream set objects. O(objects^2), 0.3 s for 1000."""
    writer = StreamWriter(shape, seed)
    image = StreamImage.from_json(writer.initial())
    for event in writer.events(objects):
        image = image.apply(event, check=False)
    return image


def random_queries(
    image: StreamImage, count: int, seed: int = 0, limit: int = 4
) -> list[tuple[int, int, int, int]]:
    """Return (stream, start, end, limit) of look-ups all over an image; every eighth to the tail.

    Starts lie up to the stream's end, ends up to 1000 records further; limits are 1 to `limit`.
    """
    pick = random.Random(seed)  # noqa: S311
    streams = list(image.streams.values())
    found = []
    for _ in range(count if streams else 0):
        stream = pick.choice(streams)
        start = pick.randint(stream.start_offset, stream.end_offset)
        end = -1 if pick.random() < 0.125 else start + pick.randint(1, 1000)
        found.append((stream.stream_id, start, end, pick.randint(1, limit)))
    return found
