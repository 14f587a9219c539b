"""StreamImage: an immutable snapshot of streams, their ranges, nodes and objects.

An image has the metadata of a stream store: which objects in object storage hold which offsets of
which streams. A node writes stream set objects, each with slices of many streams (a slice is a
range of offsets of one stream) and an order id: slices in an object of a higher one are later. A
stream object has one stream's offsets alone. A lookup works on one image from beginning to end,
whatever changes meanwhile. The next image shares everything that an event does not change.
In AutoMQ: `S3StreamsMetadataImage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bkstore.streams.image.events import apply_event
from bkstore.streams.image.json_form import parts_from_json, parts_to_json
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.streams_and_nodes import ImageParts, Node, Stream, StreamObject


@dataclass(frozen=True)
class StreamImage:
    """A snapshot: streams by id, nodes by id, stream objects by stream, ranges by object id.

    `objects` has what loading an object returns, for `ImageReader`. Stream objects are sorted.
    """

    streams: Mapping[int, Stream] = field(default_factory=dict)
    nodes: Mapping[int, Node] = field(default_factory=dict)
    stream_objects: Mapping[int, tuple[StreamObject, ...]] = field(default_factory=dict)
    objects: Mapping[int, ObjectRanges] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamImage:
        """Return the image that a JSON object describes.

        Raises `InvalidArgument`, naming the key and row, for missing, negative or unordered values,
        and for slices of a stream that overlap, or whose offsets descend while the order ids of
        their node's objects ascend.

        >>> slices = [[3, 0, 9], [4, 20, 25]]  # each a stream, and its offsets start..end-1
        >>> set_object = {"order_id": 0, "object_id": 70, "ranges": slices}
        >>> nodes = [{"node_id": 1, "objects": [set_object]}]
        >>> StreamImage.from_json({"streams": [], "nodes": nodes, "stream_objects": []}).node_of
        {70: 1}
        """
        return cls(*parts_from_json(document))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads."""
        return parts_to_json(self.parts)

    def apply(self, event: Mapping[str, Any], *, check: bool = True) -> StreamImage:
        """Return the image after one event; a ``query`` event changes nothing.

        With `check`, the slices of new objects are compared with the others: a millisecond for some
        hundred objects. Raises `InvalidArgument`.
        """
        parts = self.parts
        changed = apply_event(parts, event, check)
        return self if changed is parts else StreamImage(*changed)

    @property
    def parts(self) -> ImageParts:
        """The four mappings."""
        return ImageParts(self.streams, self.nodes, self.stream_objects, self.objects)

    def node(self, node_id: int) -> Node:
        """Return a node; an unknown one has no objects."""
        return self.nodes.get(node_id) or Node(node_id)

    def stream_objects_of(self, stream: int) -> tuple[StreamObject, ...]:
        """Return a stream's own objects, sorted by start."""
        return self.stream_objects.get(stream, ())

    @cached_property
    def node_of(self) -> dict[int, int]:
        """The node of each listed stream set object."""
        return {id_: node.node_id for node in self.nodes.values() for id_ in node.object_ids}

    def removed_since(self, older: StreamImage) -> set[int]:
        """Return the stream set objects that an older image lists and this one does not."""
        return set(older.added_since(self))

    def added_since(self, older: StreamImage) -> list[int]:
        """Return the stream set objects that this image lists and an older one does not."""
        # A node that did not change is the same Python object in both images, and is passed over.
        return [
            object_id
            for node_id, node in self.nodes.items()
            if older.nodes.get(node_id) is not node
            for object_id in node.object_ids
            if object_id not in older.node_of
        ]
