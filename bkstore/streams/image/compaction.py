"""Compaction by count: neighbouring stream set objects of a node become one.

A cold search costs as much as a node's list is long, so the number of objects is bounded. What
no answer may show is that it happened: slices are joined only where the node itself has both
sides of the joint, so that no hole and nobody else's offsets come to be covered.

Source of the rules: AutoMQ/automq#2731, which asks for a trigger by count and names no number;
limits of one compaction as AutoMQ's `CompactionManager` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bkstore.arguments import instance, number, optional, whole
from bkstore.errors import InvalidArgument
from bkstore.streams.image.folding import Fold
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage

MAX_OBJECTS = 500
"""Objects that one compaction reads."""

MAX_STREAMS = 20_000
"""Streams of one object: a filter of 23,968 bytes."""


class CompactionPlan(NamedTuple):
    """Neighbours in the list of a node, in the order of their order ids."""

    node_id: int
    object_ids: tuple[int, ...]


# -- which objects


def plan_compactions(
    image: StreamImage,
    *,
    per_node: int | None = None,
    per_cluster: int | None = None,
    target: float = 0.5,
    max_objects: int = MAX_OBJECTS,
) -> list[CompactionPlan]:
    """Return what to compact where a node, or the cluster, has more objects than it should.

    Needs the number of objects only: nothing is loaded. A list that is too long is cut into
    groups of neighbours, as even as can be, so that no object is rewritten again and again:
    `target` is the share of the limit that is left, which makes room until the next time. For
    the cluster's sake the longest lists are cut first. Groups have up to `max_objects`, so that
    a very long list takes several turns. Raises `InvalidArgument`. O(objects).
    """
    instance(StreamImage)("image", image)
    for name, limit in (("per_node", per_node), ("per_cluster", per_cluster)):
        optional(whole(1))(name, limit)
    number(0, 1, above=True)("target", target)
    whole(2)("max_objects", max_objects)
    goals = {node_id: len(node) for node_id, node in sorted(image.nodes.items())}
    if per_node is not None:
        left = max(1, int(per_node * target))
        goals = {node: left if count > per_node else count for node, count in goals.items()}
    if per_cluster is not None and sum(goals.values()) > per_cluster:
        level = _level(list(goals.values()), int(per_cluster * target))
        goals = {node: min(level, count) for node, count in goals.items()}
    return [
        CompactionPlan(node_id, group)
        for node_id, goal in goals.items()
        for group in _groups(image.nodes[node_id].object_ids, goal, max_objects)
        if len(group) > 1
    ]


def _level(counts: list[int], room: int) -> int:
    """Return the greatest length of a list with which all together have room; at least 1."""
    low, high = 1, max(counts)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(middle, count) for count in counts) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _groups(ids: tuple[int, ...], goal: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the list cut into `goal` groups, more if they would be larger than `most`."""
    count = max(goal, -(-len(ids) // most))
    for at in range(count):
        yield ids[len(ids) * at // count : len(ids) * (at + 1) // count]


# -- what becomes of them


def compact_event(
    image: StreamImage,
    plan: CompactionPlan,
    held: Mapping[int, ObjectRanges],
    new_id: Callable[[], int],
    *,
    max_streams: int = MAX_STREAMS,
) -> dict[str, Any] | None:
    """Return the "compact" event of a plan for `StreamImage.apply`; `held` has its objects.

    The new object takes the smallest order id. A stream whose slices do not join (a hole between
    them, a stream object, another node's slice) is not folded: each contiguous piece becomes a
    stream object. Slices before a stream's start, which nobody may read, are left out. What
    look-ups find covered is the same before and after.

    An object takes up to `max_streams` streams, and stream objects count whoever owns their
    offsets: so pieces that this node does not own throughout stay where they are. Therefore the
    first run of the plan's objects that may be one is taken, and the rest stays for another
    turn; None if no two neighbours may be one. Raises `InvalidArgument` for a plan that is out
    of date and for objects that are not in `held`. O(n log n) of the slices.
    """
    ids = plan.object_ids
    _check(image, plan, held)
    first = 0
    while first < len(ids) - 1:
        last = _fitting(ids, first, held, max_streams)
        folded = Fold(image, plan.node_id, [held[one] for one in ids[first:last]])
        if folded.usable > 1:
            removed = ids[first : first + folded.usable]
            folded = Fold(image, plan.node_id, [held[one] for one in removed])
            return _event(image, plan.node_id, removed, folded, new_id)
        first += 1
    return None


def _check(image: StreamImage, plan: CompactionPlan, held: Mapping[int, ObjectRanges]) -> None:
    node = image.node(plan.node_id)
    first = node.positions.get(plan.object_ids[0], 0) if plan.object_ids else 0
    listed = node.object_ids[first : first + len(plan.object_ids)]
    if not plan.object_ids or plan.object_ids != listed:
        raise InvalidArgument(
            f"objects {plan.object_ids} are no neighbours on node {plan.node_id} any more"
        )
    missing = [one for one in plan.object_ids if one not in held]
    if missing:
        raise InvalidArgument(f"object {missing[0]} is to be compacted, and was not loaded")


def _fitting(ids: tuple[int, ...], first: int, held: Mapping[int, ObjectRanges], most: int) -> int:
    """Return the end of the longest run from `first` on that has up to `most` streams."""
    streams = held[ids[first]].streams
    for at in range(first + 1, len(ids)):
        streams = np.union1d(streams, held[ids[at]].streams)
        if streams.size > most:
            return at
    return len(ids)


def _event(
    image: StreamImage,
    node_id: int,
    removed: tuple[int, ...],
    folded: Fold,
    new_id: Callable[[], int],
) -> dict[str, Any]:
    rows = np.stack((folded.streams, folded.starts, folded.ends), axis=1)
    together, alone = rows[folded.single].tolist(), rows[~folded.single].tolist()
    node = image.node(node_id)
    order_id = node.ordered[node.positions[removed[0]]][0]
    return {
        "op": "compact",
        "node_id": node_id,
        "removed": list(removed),
        "added": [{"object_id": new_id(), "order_id": order_id, "ranges": together}]
        if together
        else [],
        "added_stream_objects": [
            {"object_id": new_id(), "stream_id": stream, "start": start, "end": end}
            for stream, start, end in alone
        ],
        "end_offsets": {},
    }
