"""Chain: an answer put together object by object, and the check of a finished one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bkstore.errors import CorruptionError
from bkstore.streams.image.streams_and_nodes import Stream
from bkstore.streams.lookup.node_search import NodeSearch
from bkstore.streams.lookup.search_context import SearchContext


class AnswerObject(NamedTuple):
    """One object of an answer: stream set object or stream object, and its whole slice."""

    kind: Literal["SSO", "SO"]
    object_id: int
    start: int
    end: int


class _Chain:
    """The objects so far, and the offset that the next one must begin at."""

    def __init__(self, context: SearchContext, stream: Stream, start: int) -> None:
        self._context = context
        self._stream = stream
        self._own = context.image.stream_objects_of(stream.stream_id)
        self._own_starts = [one.start for one in self._own]
        self._searches: dict[int, NodeSearch] = {}
        self._next = start
        self.objects: list[AnswerObject] = []

    def extend(self) -> bool:
        """Add the object that goes on; return whether there is one."""
        found = self._stream_object() or self._stream_set_object()
        if found is None:
            return False
        self.objects.append(found)
        self._next = found.end
        return True

    def _stream_object(self) -> AnswerObject | None:
        """Return the stream's own object that begins at the offset; the first may hold it."""
        at = bisect_right(self._own_starts, self._next)
        while at and self._own[at - 1].end <= self._own[at - 1].start:
            at -= 1  # an empty one
        if at == 0:
            return None
        one = self._own[at - 1]
        if one.end <= self._next or (self.objects and one.start != self._next):
            return None
        return AnswerObject("SO", *one)

    def _stream_set_object(self) -> AnswerObject | None:
        """Return the object of the node that owns the offset; other nodes' do not count."""
        node_id = self._stream.node_at(self._next)
        if node_id is None:
            return None
        search = self._searches.get(node_id)
        if search is None:
            node = self._context.image.node(node_id)
            search = self._searches[node_id] = NodeSearch(node, self._context)
        found = search.find(self._next, contains=not self.objects)
        return None if found is None else AnswerObject("SSO", *found)


def build_chain(
    context: SearchContext, stream: Stream, start: int, end: int, limit: int
) -> list[AnswerObject]:
    """Return the objects from `start` on, up to `end`, `limit`, a hole or the end of data.

    Raises what a failed load raised. Each step takes one object, so it ends.
    """
    chain = _Chain(context, stream, start)
    while len(chain.objects) < limit and chain.extend():
        if end != -1 and chain.objects[-1].end >= end:
            break
    return chain.objects


def check_answer(objects: Sequence[AnswerObject], start: int, limit: int) -> None:
    """Check that an answer is one: within the limit, from `start` on, without a gap.

    Upstream checks each answer likewise. Raises `CorruptionError`: the metadata contradicts
    itself, or an object holds another thing than was said.
    """
    if len(objects) > limit:
        raise CorruptionError(None, None, f"{len(objects)} objects found, limit {limit}")
    reached = start
    for at, one in enumerate(objects):
        joins = one.start <= reached if at == 0 else one.start == reached
        if not joins or one.end <= reached:
            raise CorruptionError(
                None,
                None,
                f"object {one.object_id} with [{one.start}, {one.end}) does not go on at {reached}",
            )
        reached = one.end
