"""The parts of an image: streams and the ranges of their owners, nodes, and stream objects.

Names are those of the golden data's JSON; in AutoMQ: `S3StreamsMetadataImage`, `RangeMetadata`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.streams.image.object_ranges import ObjectRanges


class OwnershipRange(NamedTuple):
    """One period in which a node owned a stream: offsets [start, end)."""

    range_index: int
    epoch: int
    start: int
    end: int
    node_id: int


class StreamObject(NamedTuple):
    """An object that holds one slice of one stream."""

    object_id: int
    start: int
    end: int

    def ranges(self, stream: int) -> ObjectRanges:
        """Return the slice as `ObjectRanges`."""
        return ObjectRanges.of([(stream, self.start, self.end)])


@dataclass(frozen=True)
class Stream:
    """A stream: its first and end offsets, and the ranges that nodes have owned.

    The last range is open, whatever its `end` is. Ranges may be empty.
    """

    stream_id: int
    start_offset: int
    end_offset: int
    ranges: tuple[OwnershipRange, ...]

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` unless ids, offsets and ranges fit together."""
        name = f"stream {self.stream_id}"
        if self.stream_id < 0 or not 0 <= self.start_offset <= self.end_offset:
            offsets = f"{self.start_offset}..{self.end_offset}"
            raise InvalidArgument(f"{name}: id and offsets {offsets} are invalid")
        for before, after in pairwise(self.ranges):
            if before.range_index >= after.range_index or before.end > after.start:
                indexes = f"{before.range_index} and {after.range_index}"
                raise InvalidArgument(f"{name}: ranges {indexes} are out of order")
        for owned in self.ranges:
            range_name = f"{name}: range {owned.range_index}"
            if owned.start < 0:
                raise InvalidArgument(f"{range_name} begins at {owned.start}")
            if owned.start > owned.end and owned is not self.ranges[-1]:
                raise InvalidArgument(f"{range_name} has its start after its end")

    @cached_property
    def _range_starts(self) -> list[int]:
        return [stream_range.start for stream_range in self.ranges]

    def range_at(self, offset: int) -> int | None:
        """Return the index in `ranges` of the range holding an offset, None if none does."""
        index = bisect_right(self._range_starts, offset) - 1
        if index < 0 or (index < len(self.ranges) - 1 and offset >= self.ranges[index].end):
            return None
        return index

    def node_at(self, offset: int) -> int | None:
        """Return the node that owns the range holding an offset, None if no range does."""
        index = self.range_at(offset)
        return None if index is None else self.ranges[index].node_id


@dataclass(frozen=True)
class Node:
    """The stream set objects of a writing node: (order id, object id) pairs, ascending."""

    node_id: int
    order_and_object_ids: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` if two objects share an order id."""
        for (order_id, one), (next_order_id, other) in pairwise(self.order_and_object_ids):
            if order_id == next_order_id:
                objects = f"objects {one} and {other}"
                raise InvalidArgument(f"node {self.node_id}: {objects} share order id {order_id}")

    @classmethod
    def of(cls, node_id: int, objects: Iterable[tuple[int, int]]) -> Node:
        """Return a node of (order id, object id) pairs in any order."""
        return cls(node_id, tuple(sorted(objects)))

    def __len__(self) -> int:
        return len(self.order_and_object_ids)

    @cached_property
    def object_ids(self) -> tuple[int, ...]:
        """The object ids, sorted by order id."""
        return tuple(object_id for _, object_id in self.order_and_object_ids)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The index of each object id in `object_ids`."""
        return {object_id: position for position, object_id in enumerate(self.object_ids)}


class ImageParts(NamedTuple):
    """Streams by id, nodes by id, stream objects by stream (ascending), ranges by object id."""

    streams: Mapping[int, Stream]
    nodes: Mapping[int, Node]
    stream_objects: Mapping[int, tuple[StreamObject, ...]]
    objects: Mapping[int, ObjectRanges]
