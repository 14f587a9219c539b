"""What an image is made of: streams and the ranges of their owners, nodes, stream objects.

Names are those of the golden data's JSON; upstream: `S3StreamsMetadataImage`, `RangeMetadata`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.streams.image.object_ranges import ObjectRanges


class StreamRange(NamedTuple):
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
        """Return its slice as the ranges of an object."""
        return ObjectRanges.of([(stream, self.start, self.end)])


@dataclass(frozen=True)
class Stream:
    """A stream: where it begins, where it ends, who owned which part of it.

    The last range is open, whatever its end says. Empty ranges may be among them.
    """

    stream_id: int
    start_offset: int
    end_offset: int
    ranges: tuple[StreamRange, ...]

    def __post_init__(self) -> None:
        name = f"stream {self.stream_id}"
        if self.stream_id < 0 or not 0 <= self.start_offset <= self.end_offset:
            raise InvalidArgument(
                f"{name}: id and offsets {self.start_offset}..{self.end_offset} cannot be"
            )
        for before, after in zip(self.ranges, self.ranges[1:]):
            if before.range_index >= after.range_index or before.end > after.start:
                raise InvalidArgument(
                    f"{name}: ranges {before.range_index} and {after.range_index} are out of order"
                )
        for one in self.ranges:
            if one.start < 0:
                raise InvalidArgument(f"{name}: range {one.range_index} begins at {one.start}")
            if one.start > one.end and one is not self.ranges[-1]:
                raise InvalidArgument(f"{name}: range {one.range_index} has a start behind its end")

    @cached_property
    def _starts(self) -> list[int]:
        return [one.start for one in self.ranges]

    def range_at(self, offset: int) -> int | None:
        """Return which of `ranges` holds an offset, None if no range does."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or (at < len(self.ranges) - 1 and offset >= self.ranges[at].end):
            return None
        return at

    def node_at(self, offset: int) -> int | None:
        """Return the node that owns the range holding an offset, None if no range does."""
        at = self.range_at(offset)
        return None if at is None else self.ranges[at].node_id


@dataclass(frozen=True)
class Node:
    """The stream set objects of a writer: (order id, object id), ascending."""

    node_id: int
    ordered: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for (before, one), (after, other) in zip(self.ordered, self.ordered[1:]):
            if before == after:
                raise InvalidArgument(
                    f"node {self.node_id}: objects {one} and {other} have one order id, {before}"
                )

    @classmethod
    def of(cls, node_id: int, objects: Iterable[tuple[int, int]]) -> Node:
        """Return a node of (order id, object id) pairs in any order."""
        return cls(node_id, tuple(sorted(objects)))

    def __len__(self) -> int:
        return len(self.ordered)

    @cached_property
    def object_ids(self) -> tuple[int, ...]:
        """The objects, in the order of their order ids."""
        return tuple(object_id for _, object_id in self.ordered)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The place of each object in that order."""
        return {object_id: at for at, object_id in enumerate(self.object_ids)}


class ImageParts(NamedTuple):
    """Streams by id, nodes by id, stream objects by stream (rising), ranges by object id."""

    streams: Mapping[int, Stream]
    nodes: Mapping[int, Node]
    stream_objects: Mapping[int, tuple[StreamObject, ...]]
    objects: Mapping[int, ObjectRanges]
