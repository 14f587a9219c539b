"""Limits on the number of stream set objects: which ones to compact to stay below them.

A cold search costs more the longer a node's list is, so the number of objects is bounded, for each
node and for the cluster. The proposal, AutoMQ/automq#2731, names no number; the limit of one
compaction is that of AutoMQ's `CompactionManager`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bkstore.arguments import instance, integer, number, optional
from bkstore.streams.image.stream_image import StreamImage

MAX_OBJECTS = 500
"""Maximum number of objects that one compaction reads."""


class CompactionPlan(NamedTuple):
    """Neighbors in the list of a node, sorted by order id."""

    node_id: int
    object_ids: tuple[int, ...]


def plan_compactions(
    image: StreamImage,
    *,
    per_node: int | None = None,
    per_cluster: int | None = None,
    target: float = 0.5,
    max_objects: int = MAX_OBJECTS,
) -> list[CompactionPlan]:
    """Return the compactions that bring nodes, or the cluster, below their limit of objects.

    Loads no objects. A node's list that is too long is split into groups of neighbors of about
    equal size, each to become one object, so that no object is rewritten again and again. `target`
    is the share of the limit to shrink to. For the cluster's limit, the longest lists are shortened
    first. Groups have up to `max_objects`, so a very long list takes several rounds. Raises
    `InvalidArgument`. O(objects).
    """
    instance(StreamImage)("image", image)
    for name, limit in (("per_node", per_node), ("per_cluster", per_cluster)):
        optional(integer(1))(name, limit)
    number(0, 1, above=True)("target", target)
    integer(2)("max_objects", max_objects)
    # The number of objects that each node is to have: first as many as now.
    goals = {node_id: len(node) for node_id, node in sorted(image.nodes.items())}
    if per_node is not None:
        target_count = max(1, int(per_node * target))
        goals = {node: target_count if count > per_node else count for node, count in goals.items()}
    if per_cluster is not None and sum(goals.values()) > per_cluster:
        max_goal = _find_max_goal(list(goals.values()), int(per_cluster * target))
        goals = {node: min(max_goal, count) for node, count in goals.items()}
    return [
        CompactionPlan(node_id, group)
        for node_id, goal in goals.items()
        for group in _split_evenly(image.nodes[node_id].object_ids, goal, max_objects)
        if len(group) > 1  # a single object stays as it is
    ]


def _find_max_goal(counts: list[int], max_sum: int) -> int:
    """Return the greatest limit that cuts `counts` to a sum of at most `max_sum`; at least 1."""
    low, high = 1, max(counts)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(middle, count) for count in counts) <= max_sum
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _split_evenly(ids: tuple[int, ...], goal: int, max_size: int) -> Iterator[tuple[int, ...]]:
    """Yield the ids split into `goal` groups, or more if groups would exceed `max_size` ids."""
    group_count = max(goal, -(-len(ids) // max_size))
    for group in range(group_count):
        yield ids[len(ids) * group // group_count : len(ids) * (group + 1) // group_count]
