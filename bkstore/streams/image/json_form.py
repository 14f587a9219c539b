"""The JSON form of images, for `StreamImage.from_json` and `to_json`, as in the golden data."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bkstore.errors import InvalidArgument
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.slice_checks import check_slices
from bkstore.streams.image.streams_and_nodes import (
    ImageParts,
    Node,
    OwnershipRange,
    Stream,
    StreamObject,
)

_MAX_NUMBER = 2**63 - 1


@contextmanager
def _prefix_errors(place: str) -> Iterator[None]:
    """Prefix the message of an `InvalidArgument` with its place in the JSON."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error}") from None


def read_number(row: Any, key: str, lowest: int = 0) -> int:
    """Return the 64-bit number under `key`; raises `InvalidArgument` if there is none."""
    if not isinstance(row, Mapping):
        raise InvalidArgument(f"must be an object, not {type(row).__name__}")
    value = row.get(key)
    if type(value) is not int or not lowest <= value <= _MAX_NUMBER:
        raise InvalidArgument(f"{key} must be a number of at least {lowest}, not {value!r:.60}")
    return value


def read_rows(document: Any, key: str) -> list[Any]:
    """Return the list under `key`; raises `InvalidArgument` if there is none."""
    if not isinstance(document, Mapping):
        raise InvalidArgument(f"must be an object, not {type(document).__name__}")
    items = document.get(key)
    if not isinstance(items, list):
        raise InvalidArgument(f"{key} must be a list, not {items!r:.60}")
    return items


def read_numbers(document: Any, key: str) -> list[int]:
    """Return the list of 64-bit numbers under `key`; raises `InvalidArgument` if there is none."""
    items = read_rows(document, key)
    for index, value in enumerate(items):
        # As a JSON object with one key, so that an error names the index.
        read_number({f"{key}[{index}]": value}, f"{key}[{index}]")
    return items


def _read_stream(row: Any) -> Stream:
    """Return the stream that a JSON object describes. Raises `InvalidArgument`, which names the
    field."""
    ranges = []
    for index, range_row in enumerate(read_rows(row, "ranges")):
        with _prefix_errors(f"ranges[{index}]"):
            values = (read_number(range_row, key) for key in OwnershipRange._fields)
            ranges.append(OwnershipRange(*values))
    return Stream(
        stream_id=read_number(row, "stream_id"),
        start_offset=read_number(row, "start_offset"),
        end_offset=read_number(row, "end_offset"),
        ranges=tuple(ranges),
    )


def object_from_json(row: Any) -> tuple[int, int, ObjectRanges]:
    """Return (order id, object id, ranges) of a stream set object."""
    object_id = read_number(row, "object_id")
    with _prefix_errors(f"object {object_id}"):
        return read_number(row, "order_id"), object_id, ObjectRanges.of(read_rows(row, "ranges"))


def stream_object_from_json(row: Any) -> tuple[int, StreamObject]:
    """Return (stream id, stream object)."""
    object_id, start, end = (read_number(row, key) for key in StreamObject._fields)
    if start > end:
        raise InvalidArgument(f"stream object {object_id} has its start after its end")
    return read_number(row, "stream_id"), StreamObject(object_id, start, end)


def parts_from_json(document: Any) -> ImageParts:
    """Return the parts of the image that a JSON object describes; see `StreamImage.from_json`."""
    streams: dict[int, Stream] = {}
    for index, row in enumerate(read_rows(document, "streams")):
        with _prefix_errors(f"streams[{index}]"):
            stream = _read_stream(row)
            _check_unique(streams, stream.stream_id, "stream")
            streams[stream.stream_id] = stream
    nodes, objects = _read_nodes(read_rows(document, "nodes"))
    stream_objects = _read_stream_objects(read_rows(document, "stream_objects"), objects)
    parts = ImageParts(streams, nodes, stream_objects, objects)
    check_slices(parts)
    return parts


def _read_nodes(node_rows: list[Any]) -> tuple[dict[int, Node], dict[int, ObjectRanges]]:
    """Return the nodes, and the ranges of all their stream set objects by object id."""
    nodes: dict[int, Node] = {}
    objects: dict[int, ObjectRanges] = {}
    for index, row in enumerate(node_rows):
        with _prefix_errors(f"nodes[{index}]"):
            node_id, order_and_object_ids = read_number(row, "node_id"), []
            _check_unique(nodes, node_id, "node")
            for order_id, object_id, ranges in map(object_from_json, read_rows(row, "objects")):
                _check_unique(objects, object_id, "object")
                objects[object_id] = ranges
                order_and_object_ids.append((order_id, object_id))
            nodes[node_id] = Node.of(node_id, order_and_object_ids)
    return nodes, objects


def _read_stream_objects(
    object_rows: list[Any], objects: Mapping[int, ObjectRanges]
) -> dict[int, tuple[StreamObject, ...]]:
    """Return each stream's objects, sorted by start. `objects` are the stream set objects, the ids
    of which a stream object must not have."""
    by_stream: dict[int, list[StreamObject]] = {}
    known_ids = set(objects)
    for index, row in enumerate(object_rows):
        with _prefix_errors(f"stream_objects[{index}]"):
            stream_id, stream_object = stream_object_from_json(row)
            _check_unique(known_ids, stream_object.object_id, "object")
            known_ids.add(stream_object.object_id)
            by_stream.setdefault(stream_id, []).append(stream_object)
    return {
        stream_id: tuple(sorted(stream_objects, key=lambda item: item.start))
        for stream_id, stream_objects in by_stream.items()
    }


def _check_unique(known_ids: Container[int], id_: int, noun: str) -> None:
    if id_ in known_ids:
        raise InvalidArgument(f"{noun} {id_} appears twice")


def parts_to_json(parts: ImageParts) -> dict[str, Any]:
    """Return the JSON object that describes the parts of an image. Raises `InvalidArgument` if the
    ranges of an object that a node lists are not known."""
    return {
        "streams": [
            {
                "stream_id": stream.stream_id,
                "start_offset": stream.start_offset,
                "end_offset": stream.end_offset,
                "ranges": [item._asdict() for item in stream.ranges],
            }
            for stream in parts.streams.values()
        ],
        "nodes": [
            {
                "node_id": node.node_id,
                "objects": [
                    {
                        "object_id": object_id,
                        "order_id": order_id,
                        "ranges": _ranges_of(parts, object_id).rows(),
                    }
                    for order_id, object_id in node.order_and_object_ids
                ],
            }
            for node in parts.nodes.values()
        ],
        "stream_objects": [
            {"object_id": item.object_id, "stream_id": stream, "start": item.start, "end": item.end}
            for stream, stream_objects in parts.stream_objects.items()
            for item in stream_objects
        ],
    }


def _ranges_of(parts: ImageParts, object_id: int) -> ObjectRanges:
    ranges = parts.objects.get(object_id)
    if ranges is None:
        raise InvalidArgument(f"object {object_id} is listed, but not in the object table")
    return ranges
