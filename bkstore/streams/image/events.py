"""Events that turn an image into the next one. Names and fields are those of the golden data.

The parts of an image are the mappings of `ImageParts`: streams, nodes, stream objects, and the
ranges (offsets by stream) of each object. A stream set object has slices of many streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.streams.image.json_form import (
    object_from_json,
    read_number,
    read_numbers,
    read_rows,
    stream_object_from_json,
)
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.slice_checks import (
    check_ascending,
    check_disjoint,
    slice_columns,
    slices_of_stream_objects,
)
from bkstore.streams.image.streams_and_nodes import (
    ImageParts,
    Node,
    OwnershipRange,
    Stream,
    StreamObject,
)

_Event = Mapping[str, Any]
_AddedRanges = list[tuple[int, ObjectRanges]]
_NO_OBJECTS: _AddedRanges = []
_Change = tuple[ImageParts, _AddedRanges]
"""The parts after an event, and (object id, ranges) of each object that it added."""


def apply_event(parts: ImageParts, event: _Event, check: bool = True) -> ImageParts:
    """Return the parts of an image after an event, `parts` itself for a query. With `check`, slices
    of new objects are compared with all others. Raises `InvalidArgument`, with the event's name."""
    op = event.get("op") if isinstance(event, Mapping) else None
    if op == "query":
        return parts
    if not isinstance(op, str) or op not in _EVENTS:
        raise InvalidArgument(f"unknown event {op!r:.60}: one of {', '.join(_EVENTS)}, query")
    try:
        changed_parts, added_ranges = _EVENTS[op](parts, event)
        changed_parts = _set_end_offsets(changed_parts, event)
        if check and added_ranges:
            _check_added(changed_parts, added_ranges)
    except InvalidArgument as error:
        raise InvalidArgument(f"event {op}: {error}") from None
    return changed_parts


def _set_end_offsets(parts: ImageParts, event: _Event) -> ImageParts:
    """Return the parts with the end offsets of streams that the event states. Their keys are stream
    ids as text, because keys of JSON objects are texts."""
    end_offsets = event.get("end_offsets", {})
    if not isinstance(end_offsets, Mapping):
        raise InvalidArgument("end_offsets must be an object")
    changed = {}
    for stream_key in end_offsets:
        stream_id = int(stream_key) if str(stream_key).isdecimal() else -1  # no stream has -1
        stream = _get_stream(parts, stream_id)
        end_offset = read_number(end_offsets, stream_key)
        if end_offset != stream.end_offset:
            changed[stream.stream_id] = replace(stream, end_offset=end_offset)
    return parts._replace(streams={**parts.streams, **changed}) if changed else parts


def _get_stream(parts: ImageParts, stream_id: int) -> Stream:
    stream = parts.streams.get(stream_id)
    if stream is None:
        raise InvalidArgument(f"no stream {stream_id}")
    return stream


def _check_new(parts: ImageParts, object_ids: list[int]) -> None:
    """Raise `InvalidArgument` if an object already has one of these ids or an id is repeated."""
    known_ids = {item.object_id for items in parts.stream_objects.values() for item in items}
    for object_id in object_ids:
        if object_id in known_ids or object_id in parts.objects:
            raise InvalidArgument(f"object {object_id} already exists")
        known_ids.add(object_id)


def _add_object(parts: ImageParts, event: _Event) -> _Change:
    node_id, new_object = read_number(event, "node_id"), event.get("object")
    return _replace_objects(parts, node_id, removed=[], added=[new_object], stream_objects=[])


def _add_stream_object(parts: ImageParts, event: _Event) -> _Change:
    stream_id, stream_object = stream_object_from_json(event.get("object"))
    _check_new(parts, [stream_object.object_id])
    return _insert_stream_objects(parts, [(stream_id, stream_object)])


def _compact(parts: ImageParts, event: _Event) -> _Change:
    """Return the change of a compaction: objects removed, others added."""
    removed = read_numbers(event, "removed")
    stream_objects = list(map(stream_object_from_json, read_rows(event, "added_stream_objects")))
    node_id = read_number(event, "node_id")
    return _replace_objects(parts, node_id, removed, read_rows(event, "added"), stream_objects)


def _replace_objects(
    parts: ImageParts,
    node_id: int,
    removed: list[int],
    added: list[Any],
    stream_objects: list[tuple[int, StreamObject]],
) -> _Change:
    """Return the parts after replacing `removed` objects of a node, and the ranges of new objects.

    `added` are stream set objects in JSON form, `stream_objects` (stream id, stream object) pairs.
    """
    node = parts.nodes.get(node_id) or Node(node_id)
    for object_id in removed:
        if object_id not in node.positions:
            raise InvalidArgument(f"node {node_id} has no object {object_id}")
    removed_ids = set(removed)
    objects = {id_: ranges for id_, ranges in parts.objects.items() if id_ not in removed_ids}
    parts = parts._replace(objects=objects)
    listed_ids = [
        (order_id, object_id)
        for order_id, object_id in node.order_and_object_ids
        if object_id not in removed_ids
    ]
    # Check the new ids after the removal, as a new object may have the id of a removed one.
    new_objects, added_ranges = list(map(object_from_json, added)), []
    new_ids = [object_id for _, object_id, _ in new_objects]
    _check_new(parts, new_ids + [item.object_id for _, item in stream_objects])
    for order_id, object_id, ranges in new_objects:
        objects[object_id] = ranges
        listed_ids.append((order_id, object_id))
        added_ranges.append((object_id, ranges))
    nodes = {**parts.nodes, node_id: Node.of(node_id, listed_ids)}
    parts, inserted_ranges = _insert_stream_objects(parts._replace(nodes=nodes), stream_objects)
    return parts, added_ranges + inserted_ranges


def _insert_stream_objects(parts: ImageParts, added: Iterable[tuple[int, StreamObject]]) -> _Change:
    """Return the parts with the added (stream id, stream object) pairs, and the ranges of the added
    objects, which the caller checks. A stream's objects stay sorted by start."""
    stream_objects, added_ranges = dict(parts.stream_objects), []
    for stream_id, stream_object in added:
        all_objects = (*stream_objects.get(stream_id, ()), stream_object)
        stream_objects[stream_id] = tuple(sorted(all_objects, key=lambda item: item.start))
        added_ranges.append((stream_object.object_id, stream_object.ranges(stream_id)))
    return parts._replace(stream_objects=stream_objects), added_ranges


def _trim(parts: ImageParts, event: _Event) -> _Change:
    """Return the parts after raising a stream's start and removing the stream objects before it."""
    stream = _get_stream(parts, read_number(event, "stream_id"))
    start = read_number(event, "start_offset")
    if start < stream.start_offset:
        raise InvalidArgument(f"stream {stream.stream_id} already begins at {stream.start_offset}")
    removed = set(read_numbers(event, "removed_stream_objects"))
    stream_objects = parts.stream_objects.get(stream.stream_id, ())
    missing = removed - {item.object_id for item in stream_objects}
    if missing:
        raise InvalidArgument(f"stream {stream.stream_id} has no object {min(missing)}")
    kept = tuple(item for item in stream_objects if item.object_id not in removed)
    end = max(start, stream.end_offset)  # the stream may be trimmed beyond its known end
    trimmed = replace(stream, start_offset=start, end_offset=end)
    streams = {**parts.streams, stream.stream_id: trimmed}
    all_stream_objects = {**parts.stream_objects, stream.stream_id: kept}
    return parts._replace(streams=streams, stream_objects=all_stream_objects), _NO_OBJECTS


def _move(parts: ImageParts, event: _Event) -> _Change:
    """Return the parts after a stream moved to the event's node: the range of the previous owner is
    closed at an offset, and a range of the new owner begins there."""
    stream = _get_stream(parts, read_number(event, "stream_id"))
    closed_at, node_id = read_number(event, "closed_at"), read_number(event, "node_id")
    if not stream.ranges:
        raise InvalidArgument(f"stream {stream.stream_id} has no range to close")
    last = stream.ranges[-1]
    if closed_at < last.start:
        raise InvalidArgument(f"stream {stream.stream_id}: its last range begins at {last.start}")
    ranges = (
        *stream.ranges[:-1],
        last._replace(end=closed_at),
        OwnershipRange(last.range_index + 1, last.epoch + 1, closed_at, closed_at, node_id),
    )
    streams = {**parts.streams, stream.stream_id: replace(stream, ranges=ranges)}
    return parts._replace(streams=streams), _NO_OBJECTS


def _check_added(parts: ImageParts, added_ranges: _AddedRanges) -> None:
    """Raise `InvalidArgument` if slices of the added objects overlap others, or do not ascend with
    the order ids of their node's objects. Only the streams of the added objects are checked."""
    streams = np.unique(np.concatenate([ranges.streams for _, ranges in added_ranges]))
    new_ids, slices = {object_id for object_id, _ in added_ranges}, []
    for node in parts.nodes.values():
        node_slices = list(_columns_of_streams(parts, node, streams))
        if not new_ids.isdisjoint(node.positions):  # other nodes have not changed
            check_ascending(node, node_slices)
        slices += node_slices
    for stream in streams.tolist():
        slices += slices_of_stream_objects(parts, stream)
    check_disjoint(slices)


def _columns_of_streams(
    parts: ImageParts, node: Node, stream_ids: Int64Array
) -> Iterator[Int64Array]:
    """Yield for each object of a node its slices of the wanted streams, as the columns of
    `slice_columns`: stream, start, end, object id, position in the node's list."""
    for position, object_id in enumerate(node.object_ids):
        ranges = parts.objects.get(object_id)
        if ranges is None or not len(ranges) or not stream_ids.size:
            continue
        # The object's streams ascend: find the row of each wanted one, and keep those that match.
        rows = np.minimum(ranges.streams.searchsorted(stream_ids), len(ranges) - 1)
        matching_rows = rows[ranges.streams[rows] == stream_ids]
        if matching_rows.size:
            yield slice_columns(ranges, object_id, position)[:, matching_rows]


_EVENTS: dict[str, Callable[[ImageParts, _Event], _Change]] = {
    "add_object": _add_object,
    "add_stream_object": _add_stream_object,
    "compact": _compact,
    "trim": _trim,
    "move": _move,
}
