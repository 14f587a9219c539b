"""Images as JSON: what `StreamImage.from_json` and `to_json` do. The form is the golden data's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bkstore.errors import InvalidArgument
from bkstore.streams.image.checks import check_slices
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.streams_and_nodes import (
    ImageParts,
    Node,
    Stream,
    StreamObject,
    StreamRange,
)

_LARGEST = 2**63 - 1


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in the JSON before what is wrong there."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error}") from None


def number(row: Any, key: str, lowest: int = 0) -> int:
    """Return a 64-bit number of a JSON object; `InvalidArgument` if there is none."""
    if not isinstance(row, Mapping):
        raise InvalidArgument(f"must be an object, not {type(row).__name__}")
    value = row.get(key)
    if type(value) is not int or not lowest <= value <= _LARGEST:
        raise InvalidArgument(f"{key} must be a number from {lowest} on, not {value!r:.60}")
    return value


def rows(document: Any, key: str) -> list[Any]:
    """Return a list of a JSON object; `InvalidArgument` if there is none."""
    if not isinstance(document, Mapping):
        raise InvalidArgument(f"must be an object, not {type(document).__name__}")
    found = document.get(key)
    if not isinstance(found, list):
        raise InvalidArgument(f"{key} must be a list, not {found!r:.60}")
    return found


def numbers(document: Any, key: str) -> list[int]:
    """Return a list of 64-bit numbers of a JSON object; `InvalidArgument` if there is none."""
    found = rows(document, key)
    for at, value in enumerate(found):
        number({f"{key}[{at}]": value}, f"{key}[{at}]")
    return found


def _stream(row: Any) -> Stream:
    ranges = []
    for at, one in enumerate(rows(row, "ranges")):
        with _at(f"ranges[{at}]"):
            ranges.append(StreamRange(*(number(one, key) for key in StreamRange._fields)))
    return Stream(
        number(row, "stream_id"),
        number(row, "start_offset"),
        number(row, "end_offset"),
        tuple(ranges),
    )


def object_from_json(row: Any) -> tuple[int, int, ObjectRanges]:
    """Return (order id, object id, ranges) of a stream set object."""
    object_id = number(row, "object_id")
    with _at(f"object {object_id}"):
        return number(row, "order_id"), object_id, ObjectRanges.of(rows(row, "ranges"))


def stream_object_from_json(row: Any) -> tuple[int, StreamObject]:
    """Return (stream, stream object)."""
    found = StreamObject(*(number(row, key) for key in StreamObject._fields))
    if found.start > found.end:
        raise InvalidArgument(f"stream object {found.object_id} has its start behind its end")
    return number(row, "stream_id"), found


def parts_from_json(document: Any) -> ImageParts:
    """Return the parts of the image that a JSON object describes; see `StreamImage.from_json`."""
    streams: dict[int, Stream] = {}
    for at, row in enumerate(rows(document, "streams")):
        with _at(f"streams[{at}]"):
            stream = _stream(row)
            _once(streams, stream.stream_id, "stream")
            streams[stream.stream_id] = stream
    nodes, objects = _nodes(rows(document, "nodes"))
    stream_objects = _stream_objects(rows(document, "stream_objects"), objects)
    parts = ImageParts(streams, nodes, stream_objects, objects)
    check_slices(parts)
    return parts


def _nodes(listed: list[Any]) -> tuple[dict[int, Node], dict[int, ObjectRanges]]:
    nodes: dict[int, Node] = {}
    objects: dict[int, ObjectRanges] = {}
    for at, row in enumerate(listed):
        with _at(f"nodes[{at}]"):
            node_id, ordered = number(row, "node_id"), []
            _once(nodes, node_id, "node")
            for order_id, object_id, ranges in map(object_from_json, rows(row, "objects")):
                _once(objects, object_id, "object")
                objects[object_id] = ranges
                ordered.append((order_id, object_id))
            nodes[node_id] = Node.of(node_id, ordered)
    return nodes, objects


def _stream_objects(
    listed: list[Any], objects: Mapping[int, ObjectRanges]
) -> dict[int, tuple[StreamObject, ...]]:
    found: dict[int, list[StreamObject]] = {}
    ids: dict[int, int] = dict.fromkeys(objects, 0)
    for at, row in enumerate(listed):
        with _at(f"stream_objects[{at}]"):
            stream, one = stream_object_from_json(row)
            _once(ids, one.object_id, "object")
            ids[one.object_id] = 0
            found.setdefault(stream, []).append(one)
    return {stream: tuple(sorted(own, key=lambda o: o.start)) for stream, own in found.items()}


def _once(known: Mapping[int, object], key: int, what: str) -> None:
    if key in known:
        raise InvalidArgument(f"{what} {key} is there twice")


def parts_to_json(parts: ImageParts) -> dict[str, Any]:
    """Return the JSON object that `parts_from_json` takes.

    Raises `InvalidArgument` if the object table lacks a listed object.
    """
    return {
        "streams": [
            {
                "stream_id": stream.stream_id,
                "start_offset": stream.start_offset,
                "end_offset": stream.end_offset,
                "ranges": [one._asdict() for one in stream.ranges],
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
                        "ranges": _held(parts, object_id).rows(),
                    }
                    for order_id, object_id in node.ordered
                ],
            }
            for node in parts.nodes.values()
        ],
        "stream_objects": [
            {"object_id": one.object_id, "stream_id": stream, "start": one.start, "end": one.end}
            for stream, own in parts.stream_objects.items()
            for one in own
        ],
    }


def _held(parts: ImageParts, object_id: int) -> ObjectRanges:
    held = parts.objects.get(object_id)
    if held is None:
        raise InvalidArgument(f"object {object_id} is listed, but not in the object table")
    return held
