"""Checks of whole images: slices of a stream are disjoint and ascend with a node's order ids."""

from __future__ import annotations

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.streams_and_nodes import ImageParts, Node


def check_slices(parts: ImageParts) -> None:
    """Raise `InvalidArgument` if two slices (the range of a stream that one object has) overlap, or
    if a stream's offsets descend while the order ids of a node's objects ascend. O(n log n)."""
    slices = []  # of all nodes, then of the stream objects
    for node in parts.nodes.values():
        node_slices = [
            slice_columns(parts.objects[object_id], object_id, position)
            for position, object_id in enumerate(node.object_ids)
            if object_id in parts.objects
        ]
        check_ascending(node, node_slices)
        slices += node_slices
    for stream in parts.stream_objects:
        slices += slices_of_stream_objects(parts, stream)
    check_disjoint(slices)


def slices_of_stream_objects(parts: ImageParts, stream: int) -> list[Int64Array]:
    """Return the `slice_columns` of a stream's own objects."""
    stream_objects = parts.stream_objects.get(stream, ())
    return [slice_columns(item.ranges(stream), item.object_id) for item in stream_objects]


def slice_columns(ranges: ObjectRanges, object_id: int, position: int = 0) -> Int64Array:
    """Return int64[5, n]: streams, starts, ends, object id, position in the node's list (or 0)."""
    ids = np.full(len(ranges), object_id), np.full(len(ranges), position)
    return np.stack((ranges.streams, ranges.starts, ranges.ends, *ids))


def check_ascending(node: Node, slices: list[Int64Array]) -> None:
    """Raise `InvalidArgument` unless each stream's slices in a node's objects ascend in the order
    of these objects, the newer one having the later offsets."""
    if not slices:
        return
    streams, _, _, ids, positions = _sort_slices(slices)
    violations = np.flatnonzero((streams[1:] == streams[:-1]) & (positions[1:] < positions[:-1]))
    if violations.size:
        index = int(violations[0])
        raise InvalidArgument(
            f"node {node.node_id}: slices of stream {streams[index]} in objects {ids[index]} and "
            f"{ids[index + 1]} do not rise with the order ids"
        )


def _sort_slices(slices: list[Int64Array]) -> Int64Array:
    """Return all `slice_columns` in one array int64[5, n], sorted by stream and start."""
    table = np.concatenate(slices, axis=1)
    streams, starts, *_ = table
    return table[:, np.lexsort((starts, streams))]


def check_disjoint(slices: list[Int64Array]) -> None:
    """Raise `InvalidArgument` if two slices of the same stream overlap."""
    if not slices:
        return
    streams, starts, ends, ids, _ = _sort_slices(slices)
    overlaps = np.flatnonzero((streams[1:] == streams[:-1]) & (starts[1:] < ends[:-1]))
    if overlaps.size:
        index = int(overlaps[0])
        raise InvalidArgument(
            f"stream {streams[index]}: slices [{starts[index]}, {ends[index]}) of object "
            f"{ids[index]} and [{starts[index + 1]}, {ends[index + 1]}) of object "
            f"{ids[index + 1]} overlap"
        )
