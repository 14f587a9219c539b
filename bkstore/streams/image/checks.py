"""Whole images checked: slices of a stream are disjoint, and rise with a node's order ids."""

from __future__ import annotations

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.streams_and_nodes import ImageParts, Node


def check_slices(parts: ImageParts) -> None:
    """Check that slices of a stream are disjoint and rise with the order ids of each node.

    O(n log n) of all slices. Raises `InvalidArgument`, naming stream and objects.
    """
    slices = []
    for node in parts.nodes.values():
        held = [
            columns(parts.objects[object_id], object_id, at)
            for at, object_id in enumerate(node.object_ids)
            if object_id in parts.objects
        ]
        check_rising(node, held)
        slices += held
    for stream, own in parts.stream_objects.items():
        slices += [columns(one.ranges(stream), one.object_id) for one in own]
    check_disjoint(slices)


def columns(held: ObjectRanges, object_id: int, position: int = 0) -> Int64Array:
    """Return int64[5, n]: streams, starts, ends, object id, position."""
    ids = np.full(len(held), object_id), np.full(len(held), position)
    return np.stack((held.streams, held.starts, held.ends, *ids))


def check_rising(node: Node, held: list[Int64Array]) -> None:
    """Check that slices rise with a node's order ids. Raises `InvalidArgument`."""
    if not held:
        return
    streams, _, _, ids, positions = _sorted(held)
    falls = np.flatnonzero((streams[1:] == streams[:-1]) & (positions[1:] < positions[:-1]))
    if falls.size:
        at = int(falls[0])
        raise InvalidArgument(
            f"node {node.node_id}: slices of stream {streams[at]} in objects {ids[at]} and "
            f"{ids[at + 1]} do not rise with the order ids"
        )


def _sorted(slices: list[Int64Array]) -> Int64Array:
    """Return all columns, by stream and start."""
    table = np.concatenate(slices, axis=1)
    return table[:, np.lexsort((table[1], table[0]))]


def check_disjoint(slices: list[Int64Array]) -> None:
    """Check that no two slices of a stream overlap. Raises `InvalidArgument`."""
    if not slices:
        return
    streams, starts, ends, ids, _ = _sorted(slices)
    overlaps = np.flatnonzero((streams[1:] == streams[:-1]) & (starts[1:] < ends[:-1]))
    if overlaps.size:
        at = int(overlaps[0])
        raise InvalidArgument(
            f"stream {streams[at]}: slices [{starts[at]}, {ends[at]}) of object {ids[at]} and "
            f"[{starts[at + 1]}, {ends[at + 1]}) of object {ids[at + 1]} overlap"
        )
