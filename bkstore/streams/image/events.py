"""Events: how an image becomes the next one. Names and fields as in the golden timelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.streams.image.checks import check_disjoint, check_rising, columns
from bkstore.streams.image.json_form import (
    number,
    numbers,
    object_from_json,
    rows,
    stream_object_from_json,
)
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.streams_and_nodes import (
    ImageParts,
    Node,
    Stream,
    StreamObject,
    StreamRange,
)

_Added = list[tuple[int, ObjectRanges]]


def apply_event(parts: ImageParts, event: Mapping[str, Any], check: bool = True) -> ImageParts:
    """Return the parts of the next image; the same object where nothing changes."""
    op = event.get("op") if isinstance(event, Mapping) else None
    if op == "query":
        return parts
    if not isinstance(op, str) or op not in _EVENTS:
        raise InvalidArgument(f"unknown event {op!r:.60}: one of {', '.join(_EVENTS)}, query")
    try:
        changed, added = _EVENTS[op](parts, event)
        changed = _with_end_offsets(changed, event)
        if check and added:
            _check_added(changed, added)
    except InvalidArgument as error:
        raise InvalidArgument(f"event {op}: {error}") from None
    return changed


def _with_end_offsets(parts: ImageParts, event: Mapping[str, Any]) -> ImageParts:
    """Return the parts with the streams' new end offsets."""
    told = event.get("end_offsets", {})
    if not isinstance(told, Mapping):
        raise InvalidArgument("end_offsets must be an object")
    changed = {}
    for text in told:
        stream = _known(parts, int(text) if str(text).isdecimal() else -1)
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


def _known(parts: ImageParts, stream_id: int) -> Stream:
    stream = parts.streams.get(stream_id)
    if stream is None:
        raise InvalidArgument(f"no stream {stream_id}")
    return stream


def _check_new(parts: ImageParts, object_ids: list[int]) -> None:
    """Check that no object has one of these ids, and that they differ."""
    here = {one.object_id for own in parts.stream_objects.values() for one in own}
    for object_id in object_ids:
        if object_id in here or object_id in parts.objects:
            raise InvalidArgument(f"object {object_id} is there already")
        here.add(object_id)


def _add_object(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    return _compacted(parts, number(event, "node_id"), [], [event.get("object")], [])


def _add_stream_object(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    stream, one = stream_object_from_json(event.get("object"))
    _check_new(parts, [one.object_id])
    return _with_stream_objects(parts, [(stream, one)])


def _compact(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    removed = numbers(event, "removed")
    own = list(map(stream_object_from_json, rows(event, "added_stream_objects")))
    return _compacted(parts, number(event, "node_id"), removed, rows(event, "added"), own)


def _compacted(
    parts: ImageParts,
    node_id: int,
    removed: list[int],
    added: list[Any],
    own: list[tuple[int, StreamObject]],
) -> tuple[ImageParts, _Added]:
    node = parts.nodes.get(node_id) or Node(node_id)
    for object_id in removed:
        if object_id not in node.positions:
            raise InvalidArgument(f"node {node_id} has no object {object_id}")
    gone = set(removed)
    objects = {key: held for key, held in parts.objects.items() if key not in gone}
    parts = parts._replace(objects=objects)
    listed = [pair for pair in node.ordered if pair[1] not in gone]
    made, new = list(map(object_from_json, added)), []
    _check_new(parts, [row[1] for row in made] + [one.object_id for _, one in own])
    for order_id, object_id, ranges in made:
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
        held[stream] = tuple(sorted((*held.get(stream, ()), one), key=lambda each: each.start))
        new.append((one.object_id, one.ranges(stream)))
    return parts._replace(stream_objects=held), new


def _trim(parts: ImageParts, event: Mapping[str, Any]) -> tuple[ImageParts, _Added]:
    stream = _known(parts, number(event, "stream_id"))
    start = number(event, "start_offset")
    if start < stream.start_offset:
        raise InvalidArgument(f"stream {stream.stream_id} begins at {stream.start_offset} already")
    removed = set(numbers(event, "removed_stream_objects"))
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
    stream = _known(parts, number(event, "stream_id"))
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
    new, slices = {object_id for object_id, _ in added}, []
    for node in parts.nodes.values():
        here = list(_of_streams(parts, node, wanted))
        if not new.isdisjoint(node.positions):
            check_rising(node, here)
        slices += here
    for stream in wanted.tolist():
        own = parts.stream_objects.get(stream, ())
        slices += [columns(one.ranges(stream), one.object_id) for one in own]
    check_disjoint(slices)


def _of_streams(parts: ImageParts, node: Node, wanted: Int64Array) -> Iterator[Int64Array]:
    """Yield the `columns` of a node's objects that hold any of these streams, for those only."""
    for position, object_id in enumerate(node.object_ids):
        held = parts.objects.get(object_id)
        if held is None or not len(held) or not wanted.size:
            continue
        at = np.minimum(held.streams.searchsorted(wanted), len(held) - 1)
        found = at[held.streams[at] == wanted]
        if found.size:
            yield columns(held, object_id, position)[:, found]


_EVENTS: dict[str, Callable[[ImageParts, Mapping[str, Any]], tuple[ImageParts, _Added]]] = {
    "add_object": _add_object,
    "add_stream_object": _add_stream_object,
    "compact": _compact,
    "trim": _trim,
    "move": _move,
}
