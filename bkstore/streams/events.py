"""Events: how an image becomes the next one. Names and fields as in the golden timelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.streams.checks import check_disjoint, columns
from bkstore.streams.image_json import number, object_from_json, rows, stream_object_from_json
from bkstore.streams.model import ImageParts, Node, Stream, StreamObject, StreamRange
from bkstore.streams.ranges import ObjectRanges

__all__ = ["apply_event"]

_Added = list[tuple[int, ObjectRanges]]


def apply_event(parts: ImageParts, event: Mapping[str, Any], check: bool = True) -> ImageParts:
    """Return the parts of the next image; the same object where nothing changes."""
    op = event.get("op") if isinstance(event, Mapping) else None
    if op == "query":
        return parts
    if op not in _EVENTS:
        raise InvalidArgument(f"unknown event {op!r:.60}: one of {', '.join(_EVENTS)}, query")
    try:
        changed, added = _EVENTS[op](parts, event)
        changed = _with_end_offsets(changed, event)
    except InvalidArgument as error:
        raise InvalidArgument(f"event {op}: {error}") from None
    if check and added:
        _check_added(changed, added)
    return changed


def _with_end_offsets(parts: ImageParts, event: Mapping[str, Any]) -> ImageParts:
    """Return the parts with the streams' new end offsets."""
    told = event.get("end_offsets", {})
    if not isinstance(told, Mapping):
        raise InvalidArgument("end_offsets must be an object")
    changed = {}
    for text in told:
        stream = _stream(parts, int(text) if str(text).isdigit() else -1)
        end = number(told, text)
        if end != stream.end_offset:
            changed[stream.stream_id] = _changed(stream, end_offset=end)
    return parts._replace(streams={**parts.streams, **changed}) if changed else parts


def _changed(stream: Stream, **fields: Any) -> Stream:
    return Stream(
        stream.stream_id,
        fields.get("start_offset", stream.start_offset),
        fields.get("end_offset", stream.end_offset),
        fields.get("ranges", stream.ranges),
    )


def _stream(parts: ImageParts, stream_id: int) -> Stream:
    stream = parts.streams.get(stream_id)
    if stream is None:
        raise InvalidArgument(f"no stream {stream_id}")
    return stream


def _new_id(parts: ImageParts, object_id: int) -> None:
    if object_id in parts.objects:
        raise InvalidArgument(f"object {object_id} is there already")


def _add_object(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    return _compacted(parts, number(event, "node_id"), [], [event.get("object")], [])


def _add_stream_object(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    stream, one = stream_object_from_json(event.get("object"))
    return _with_stream_objects(parts, [(stream, one)])


def _compact(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    removed = rows(event, "removed")
    own = list(map(stream_object_from_json, rows(event, "added_stream_objects")))
    return _compacted(parts, number(event, "node_id"), removed, rows(event, "added"), own)


def _compacted(
    parts: ImageParts,
    node_id: int,
    removed: list[Any],
    added: list[Any],
    own: list[tuple[int, StreamObject]],
) -> tuple[ImageParts, _Added]:
    node = parts.nodes.get(node_id) or Node(node_id)
    for object_id in removed:
        if object_id not in node.positions:
            raise InvalidArgument(f"node {node_id} has no object {object_id!r:.60}")
    gone = set(removed)
    objects = {key: held for key, held in parts.objects.items() if key not in gone}
    parts = parts._replace(objects=objects)
    listed = [pair for pair in node.ordered if pair[1] not in gone]
    new: _Added = []
    for order_id, object_id, ranges in map(object_from_json, added):
        _new_id(parts, object_id)
        objects[object_id] = ranges
        listed.append((order_id, object_id))
        new.append((object_id, ranges))
    nodes = {**parts.nodes, node_id: Node.of(node_id, listed)}
    parts, more = _with_stream_objects(parts._replace(nodes=nodes), own)
    return parts, new + more


def _with_stream_objects(
    parts: ImageParts, own: Iterable[tuple[int, StreamObject]]
) -> tuple[ImageParts, _Added]:
    held, new = dict(parts.stream_objects), []
    for stream, one in own:
        _new_id(parts, one.object_id)
        before = held.get(stream, ())
        if any(one.object_id == other.object_id for other in before):
            raise InvalidArgument(f"object {one.object_id} is there already")
        held[stream] = tuple(sorted((*before, one), key=lambda each: each.start))
        new.append((one.object_id, one.ranges(stream)))
    return parts._replace(stream_objects=held), new


def _trim(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    stream = _stream(parts, number(event, "stream_id"))
    start = number(event, "start_offset")
    if start < stream.start_offset:
        raise InvalidArgument(f"stream {stream.stream_id} begins at {stream.start_offset} already")
    removed = set(rows(event, "removed_stream_objects"))
    before = parts.stream_objects.get(stream.stream_id, ())
    missing = removed - {one.object_id for one in before}
    if missing:
        raise InvalidArgument(f"stream {stream.stream_id} has no object {min(missing)}")
    left = tuple(one for one in before if one.object_id not in removed)
    end = max(start, stream.end_offset)
    streams = {
        **parts.streams,
        stream.stream_id: _changed(stream, start_offset=start, end_offset=end),
    }
    held = {**parts.stream_objects, stream.stream_id: left}
    return parts._replace(streams=streams, stream_objects=held), []


def _move(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    stream = _stream(parts, number(event, "stream_id"))
    closed, node_id = number(event, "closed_at"), number(event, "node_id")
    if not stream.ranges:
        raise InvalidArgument(f"stream {stream.stream_id} has no range to close")
    last = stream.ranges[-1]
    if closed < last.start:
        raise InvalidArgument(f"stream {stream.stream_id}: its last range begins at {last.start}")
    ranges = (
        *stream.ranges[:-1],
        last._replace(end=closed),
        StreamRange(last.range_index + 1, last.epoch + 1, closed, closed, node_id),
    )
    streams = {**parts.streams, stream.stream_id: _changed(stream, ranges=ranges)}
    return parts._replace(streams=streams), []


def _check_added(parts: ImageParts, added: _Added) -> None:
    """Compare the slices of new objects with those of all others, of the same streams."""
    wanted = np.unique(np.concatenate([held.streams for _, held in added]))
    slices: list[Int64Array] = []
    for object_id, held in parts.objects.items():
        here = np.isin(held.streams, wanted)
        if here.any():
            slices.append(columns(held, object_id)[:, here])
    for stream in wanted.tolist():
        own = parts.stream_objects.get(stream, ())
        slices += [columns(one.ranges(stream), one.object_id) for one in own]
    check_disjoint(slices)


_EVENTS: dict[str, Callable[[ImageParts, Mapping[str, Any]], tuple[ImageParts, _Added]]] = {
    "add_object": _add_object,
    "add_stream_object": _add_stream_object,
    "compact": _compact,
    "trim": _trim,
    "move": _move,
}
