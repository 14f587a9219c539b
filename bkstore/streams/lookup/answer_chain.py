"""Builds an answer object by object, and checks a finished one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bkstore.errors import CorruptionError
from bkstore.streams.image.streams_and_nodes import Stream
from bkstore.streams.lookup.node_search import NodeSearch
from bkstore.streams.lookup.search_context import SearchContext


class AnswerObject(NamedTuple):
    """One object of an answer, a stream set object or a stream object, with its whole slice."""

    kind: Literal["SSO", "SO"]
    object_id: int
    start: int
    end: int


class _Chain:
    """The objects of the answer so far, and the offset at which the next one must begin."""

    def __init__(self, context: SearchContext, stream: Stream, start: int) -> None:
        """Begin an answer, a chain of objects that follow each other, at the offset `start`."""
        self._context = context
        self._stream = stream
        self._stream_objects = context.image.stream_objects_of(stream.stream_id)
        self._stream_object_starts = [stream_object.start for stream_object in self._stream_objects]
        self._search_of_node: dict[int, NodeSearch] = {}  # a search goes on where it ended before
        self._next_offset = start
        self.objects: list[AnswerObject] = []

    def extend(self) -> bool:
        """Append the object that continues the chain; return whether there is one."""
        next_object = self._next_stream_object() or self._next_stream_set_object()
        if next_object is None:
            return False
        self.objects.append(next_object)
        self._next_offset = next_object.end
        return True

    def _next_stream_object(self) -> AnswerObject | None:
        """Return the stream object (an object of this stream alone) that begins at the next offset,
        None if there is none. Only the first object of an answer may also begin before it."""
        candidates = self._stream_objects
        last = bisect_right(self._stream_object_starts, self._next_offset) - 1
        while last >= 0 and candidates[last].end <= candidates[last].start:
            last -= 1  # skip empty objects
        if last < 0:
            return None
        object_id, start, end = candidates[last]
        if end <= self._next_offset or (self.objects and start != self._next_offset):
            return None
        return AnswerObject("SO", object_id, start, end)

    def _next_stream_set_object(self) -> AnswerObject | None:
        """Return the stream set object (an object of many streams) that begins at the next offset,
        of the node that owned the stream there; None if there is none."""
        node_id = self._stream.node_at(self._next_offset)
        if node_id is None:
            return None
        if node_id not in self._search_of_node:
            node = self._context.image.node(node_id)
            self._search_of_node[node_id] = NodeSearch(node, self._context)
        search = self._search_of_node[node_id]
        # Only the first object of the answer may begin before the offset.
        found_slice = search.find(self._next_offset, may_begin_before=not self.objects)
        return None if found_slice is None else AnswerObject("SSO", *found_slice)


def build_chain(
    context: SearchContext, stream: Stream, start: int, end: int, limit: int
) -> list[AnswerObject]:
    """Return the objects that hold a stream's offsets from `start` on, each beginning where the one
    before ends. The chain ends at `end` (-1: no such end), after `limit` objects, or before offsets
    that no object holds."""
    chain = _Chain(context, stream, start)
    while len(chain.objects) < limit and chain.extend():
        if end != -1 and chain.objects[-1].end >= end:
            break
    return chain.objects


def check_answer(objects: Sequence[AnswerObject], start: int, limit: int) -> None:
    """Raise `CorruptionError` if an answer exceeds the limit or has a gap after `start`.

    AutoMQ checks each answer likewise. It fails if the metadata are inconsistent, or if an object
    does not hold what its metadata or filter claimed. The first object may begin before `start`.
    """
    if len(objects) > limit:
        raise CorruptionError(None, None, f"{len(objects)} objects found, limit {limit}")
    next_offset = start
    for index, (_, object_id, object_start, object_end) in enumerate(objects):
        joins = object_start == next_offset or (index == 0 and object_start < next_offset)
        if not joins or object_end <= next_offset:
            offsets = f"[{object_start}, {object_end})"
            reason = f"object {object_id} with {offsets} does not continue at {next_offset}"
            raise CorruptionError(None, None, reason)
        next_offset = object_end
