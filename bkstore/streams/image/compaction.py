"""Compaction by count: neighboring stream set objects of a node become one.

A cold search costs more the longer a node's list is, so the number of objects is bounded. No answer
may change: slices are joined only where the node itself owns both sides of the joint, so that
neither a hole nor another node's offsets become covered. The rules are AutoMQ/automq#2731's, which
names no number; the limits of one compaction are those of AutoMQ's `CompactionManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bkstore.arguments import instance, integer, number, optional
from bkstore.errors import InvalidArgument
from bkstore.streams.image.folding import Fold
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage

MAX_OBJECTS = 500
"""Maximum number of objects that one compaction reads."""

MAX_STREAMS = 20_000
"""Maximum number of streams in one object; its filter then takes 23,968 bytes."""


class CompactionPlan(NamedTuple):
    """Neighbors in the list of a node, sorted by order id."""

    node_id: int
    object_ids: tuple[int, ...]


# -- choosing objects


def plan_compactions(
    image: StreamImage,
    *,
    per_node: int | None = None,
    per_cluster: int | None = None,
    target: float = 0.5,
    max_objects: int = MAX_OBJECTS,
) -> list[CompactionPlan]:
    """Return the compactions that bring nodes, or the cluster, below their limit of objects.

    Loads no objects. A list that is too long is split into groups of neighbors of about equal size,
    so that no object is rewritten again and again. `target` is the share of the limit to shrink to.
    For the cluster's limit, the longest lists come first. Groups have up to `max_objects`, so a
    very long list takes several rounds. Raises `InvalidArgument`. O(objects).
    """
    instance(StreamImage)("image", image)
    for name, limit in (("per_node", per_node), ("per_cluster", per_cluster)):
        optional(integer(1))(name, limit)
    number(0, 1, above=True)("target", target)
    integer(2)("max_objects", max_objects)
    goals = {node_id: len(node) for node_id, node in sorted(image.nodes.items())}
    if per_node is not None:
        target_count = max(1, int(per_node * target))
        goals = {node: target_count if count > per_node else count for node, count in goals.items()}
    if per_cluster is not None and sum(goals.values()) > per_cluster:
        max_length = _max_list_length(list(goals.values()), int(per_cluster * target))
        goals = {node: min(max_length, count) for node, count in goals.items()}
    return [
        CompactionPlan(node_id, group)
        for node_id, goal in goals.items()
        for group in _split_evenly(image.nodes[node_id].object_ids, goal, max_objects)
        if len(group) > 1
    ]


def _max_list_length(counts: list[int], room: int) -> int:
    """Return the greatest list length with which all lists fit into `room` objects; at least 1."""
    low, high = 1, max(counts)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(middle, count) for count in counts) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _split_evenly(ids: tuple[int, ...], goal: int, max_size: int) -> Iterator[tuple[int, ...]]:
    """Yield the ids split into `goal` groups, or more if groups would exceed `max_size` ids."""
    count = max(goal, -(-len(ids) // max_size))
    for index in range(count):
        yield ids[len(ids) * index // count : len(ids) * (index + 1) // count]


# -- compacting them


def compact_event(
    image: StreamImage,
    plan: CompactionPlan,
    loaded: Mapping[int, ObjectRanges],
    new_id: Callable[[], int],
    *,
    max_streams: int = MAX_STREAMS,
) -> dict[str, Any] | None:
    """Return the "compact" event of a plan for `StreamImage.apply`, None if nothing can be joined.

    `loaded` has the ranges of the plan's objects. The new object takes the smallest order id. A
    stream whose slices do not join (because of a hole, a stream object or another node's slice)
    becomes stream objects, one per contiguous piece. Unreadable slices before a stream's start are
    dropped. Lookups cover the same offsets before and after.

    A new object takes up to `max_streams` streams, and all pieces that this node does not own
    throughout: stream objects are found no matter who owns their offsets. The event therefore takes
    the first run of the plan's objects that can be joined and leaves the rest for another round.
    Raises `InvalidArgument` for an outdated plan and for objects not in `loaded`. O(n log n).
    """
    ids = plan.object_ids
    _check_plan(image, plan, loaded)
    first = 0
    while first < len(ids) - 1:
        last = _end_of_run(ids, first, loaded, max_streams)
        folded = Fold(image, plan.node_id, [loaded[object_id] for object_id in ids[first:last]])
        if folded.usable_count > 1:
            removed = ids[first : first + folded.usable_count]
            folded = Fold(image, plan.node_id, [loaded[object_id] for object_id in removed])
            return _make_event(image, plan.node_id, removed, folded, new_id)
        first += 1
    return None


def _check_plan(
    image: StreamImage, plan: CompactionPlan, loaded: Mapping[int, ObjectRanges]
) -> None:
    """Raise `InvalidArgument` unless the plan's objects are still neighbors and are loaded."""
    node = image.node(plan.node_id)
    first_position = node.positions.get(plan.object_ids[0], 0) if plan.object_ids else 0
    current_ids = node.object_ids[first_position : first_position + len(plan.object_ids)]
    if not plan.object_ids or plan.object_ids != current_ids:
        raise InvalidArgument(
            f"objects {plan.object_ids} are no longer neighbors on node {plan.node_id}"
        )
    missing = [object_id for object_id in plan.object_ids if object_id not in loaded]
    if missing:
        raise InvalidArgument(f"object {missing[0]} is to be compacted, but was not loaded")


def _end_of_run(
    ids: tuple[int, ...], first: int, loaded: Mapping[int, ObjectRanges], max_streams: int
) -> int:
    """Return the end of the longest run from `first` on with at most `max_streams` streams."""
    streams = loaded[ids[first]].streams
    for index in range(first + 1, len(ids)):
        streams = np.union1d(streams, loaded[ids[index]].streams)
        if streams.size > max_streams:
            return index
    return len(ids)


def _make_event(
    image: StreamImage,
    node_id: int,
    removed: tuple[int, ...],
    folded: Fold,
    new_id: Callable[[], int],
) -> dict[str, Any]:
    rows = np.stack((folded.streams, folded.starts, folded.ends), axis=1)
    set_object_rows, stream_object_rows = (
        rows[folded.is_only_piece].tolist(),
        rows[~folded.is_only_piece].tolist(),
    )
    node = image.node(node_id)
    order_id = node.order_and_object_ids[node.positions[removed[0]]][0]
    return {
        "op": "compact",
        "node_id": node_id,
        "removed": list(removed),
        "added": [{"object_id": new_id(), "order_id": order_id, "ranges": set_object_rows}]
        if set_object_rows
        else [],
        "added_stream_objects": [
            {"object_id": new_id(), "stream_id": stream, "start": start, "end": end}
            for stream, start, end in stream_object_rows
        ],
        "end_offsets": {},
    }
