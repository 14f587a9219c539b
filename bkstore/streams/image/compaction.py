"""Compaction: neighboring stream set objects of a node become one.

No answer may change: slices are joined only where the node itself owns both sides of the joint, so
that neither a hole nor another node's offsets become covered. The rules are AutoMQ/automq#2731's;
the limit of streams is that of AutoMQ's `CompactionManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.streams.image.compaction_limits import CompactionPlan
from bkstore.streams.image.folding import Fold
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.image.streams_and_nodes import Node

MAX_STREAMS = 20_000
"""Maximum number of streams in one object; its filter then takes 23,968 bytes."""

_Loaded = Mapping[int, ObjectRanges]


def compact_event(
    image: StreamImage,
    plan: CompactionPlan,
    loaded: _Loaded,
    new_id: Callable[[], int],
    *,
    max_streams: int = MAX_STREAMS,
) -> dict[str, Any] | None:
    """Return the "compact" event of a plan for `StreamImage.apply`, None if nothing can be joined.

    `loaded` has the ranges of the plan's objects. The new stream set object takes the smallest
    order id, and has each stream whose slices join to one piece. If they do not (because of a hole,
    a stream object or another node's slice), each piece becomes a stream object. Unreadable slices
    before a stream's start are dropped. Lookups cover the same offsets before and after.

    Two limits can exclude objects: the new one has at most `max_streams` streams, and pieces that
    the node owns only in part must stay in a stream set object, as a stream object is found no
    matter who owns its offsets. The event replaces the first neighbors in the plan that can become
    one object; the others are left for another round.
    Raises `InvalidArgument` for an outdated plan and for objects not in `loaded`. O(n log n).
    """
    ids = plan.object_ids
    _check_plan(image, plan, loaded)
    for first in range(len(ids) - 1):
        stop = _find_stop(ids, first, loaded, max_streams)
        folded = Fold(image, plan.node_id, [loaded[object_id] for object_id in ids[first:stop]])
        if folded.usable_count > 1:
            # Fold again without the objects that cannot be joined with these.
            removed = ids[first : first + folded.usable_count]
            folded = Fold(image, plan.node_id, [loaded[object_id] for object_id in removed])
            return _make_event(image.node(plan.node_id), removed, folded, new_id)
    return None


def _check_plan(image: StreamImage, plan: CompactionPlan, loaded: _Loaded) -> None:
    """Raise `InvalidArgument` for a plan that an image no longer fits, or whose objects are not all
    in `loaded`. The plan's objects (files with ranges of many streams) must still be neighbors in
    the list of their node, the server that wrote them: only neighbors can become one object."""
    node, planned_ids = image.node(plan.node_id), plan.object_ids
    first = node.positions.get(planned_ids[0], 0) if planned_ids else 0
    listed_ids = node.object_ids[first : first + len(planned_ids)]
    if not planned_ids or planned_ids != listed_ids:
        raise InvalidArgument(
            f"objects {planned_ids} are no longer neighbors on node {plan.node_id}"
        )
    missing = [object_id for object_id in planned_ids if object_id not in loaded]
    if missing:
        raise InvalidArgument(f"object {missing[0]} is to be compacted, but was not loaded")


def _find_stop(ids: tuple[int, ...], first: int, loaded: _Loaded, max_streams: int) -> int:
    """Return the greatest `stop` for which the objects ``ids[first:stop]`` have at most
    `max_streams` streams together; at least the first object is among them."""
    streams = loaded[ids[first]].streams
    for index in range(first + 1, len(ids)):
        streams = np.union1d(streams, loaded[ids[index]].streams)
        if streams.size > max_streams:
            return index
    return len(ids)


def _make_event(
    node: Node, removed: tuple[int, ...], folded: Fold, new_id: Callable[[], int]
) -> dict[str, Any]:
    """Return the event that replaces the objects `removed` by new ones: one stream set object with
    the streams whose slices join to a single piece, and for each piece of any other stream a stream
    object, which has a range of that stream only."""
    rows = np.stack((folded.streams, folded.starts, folded.ends), axis=1)
    ranges = rows[folded.is_only_piece].tolist()
    added = []
    if ranges:  # the new object takes the place, by order id, of the first removed one
        order_id, _ = node.order_and_object_ids[node.positions[removed[0]]]
        added = [{"object_id": new_id(), "order_id": order_id, "ranges": ranges}]
    stream_objects = [
        {"object_id": new_id(), "stream_id": stream, "start": start, "end": end}
        for stream, start, end in rows[~folded.is_only_piece].tolist()
    ]
    return {
        "op": "compact",
        "node_id": node.node_id,
        "removed": list(removed),
        "added": added,
        "added_stream_objects": stream_objects,
        "end_offsets": {},
    }
