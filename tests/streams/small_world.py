"""A small world of streams that the stream tests change and look into."""

from __future__ import annotations

from typing import Any

from bkstore.streams import (
    ImageReader,
    LookupOptions,
    QueryStats,
    StreamImage,
    StreamLookup,
)

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
