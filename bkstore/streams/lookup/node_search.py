"""NodeSearch: one look-up in the object list of one node, wave by wave.

The list is sorted by order id, and the slices of a stream rise with it. So an object that is
known to begin at or before the wanted offset is a lower bound: what is wanted is there or behind
it. An index that knows little makes the search slow, never wrong.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.streams.image.streams_and_nodes import Node
from bkstore.streams.lookup.object_loader import Wave
from bkstore.streams.lookup.search_context import Found, SearchContext
from bkstore.streams.lookup.stats import WaveTrace


class NodeSearch:
    """A cursor in a node's list, and what this look-up knows of the objects there."""

    def __init__(self, node: Node, context: SearchContext) -> None:
        self._node = node
        self._context = context
        self._at = 0
        self._known: dict[int, tuple[int, int] | None] = {}
        self._perhaps: set[int] = set()
        self._starts: list[tuple[int, int]] = []
        self._asked = False
        self._found = False
        self._waves = 0
        self._missed = 0
        self._preloads = 0
        self._preload_due = context.tail and context.options.tail_first
        context.stats.nodes += 1
        context.stats.listed += len(node)

    def find(self, offset: int, contains: bool) -> Found | None:
        """Return the next object whose slice begins at `offset`, None if this node has none.

        With `contains` it may begin before. Raises what a failed load raised. Each turn of the
        loop makes the object under the cursor known, or moves the cursor on.
        """
        self._jump(offset)
        while self._at < len(self._node):
            if not self._is_known(self._at):
                self._load(offset)
                self._jump(offset)
                continue
            held = self._known[self._at]
            if held is not None and held[1] > offset:
                if held[0] > offset or (held[0] < offset and not contains):
                    return None
                self._found = True
                self._at += 1
                return Found(self._node.object_ids[self._at - 1], *held)
            self._at += 1
        return None

    # -- where to go on

    def _jump(self, offset: int) -> None:
        """Move up to the last object that is known to begin at or before the offset."""
        context, first = self._context, not self._asked
        self._asked = True
        if context.strategy == "load-all" or (context.strategy == "sparse-index" and not first):
            return
        own = bisect_right(self._starts, (offset, len(self._node)))
        at = max(self._at, self._starts[own - 1][1]) if own else self._at
        if context.strategy == "sparse-index" or context.index is not None:
            known = self._shared_position(offset)
            at = max(at, known or 0)
            if first:
                context.stats.index_hits += known is not None
                context.stats.index_misses += known is None
        context.stats.skipped += at - self._at if first else 0
        context.stats.jumps += not first and at > self._at
        self._at = at

    def _shared_position(self, offset: int) -> int | None:
        """Return what the index that outlives look-ups says, None if it knows nothing."""
        index = self._context.index
        return (
            self._sparse_position(offset) if index is None else self._lazy_position(index, offset)
        )

    def _sparse_position(self, offset: int) -> int | None:
        sparse = self._context.sparse.get(self._node.node_id)
        known = None if sparse is None else sparse.floor(self._context.stream, offset)
        return None if known is None else self._node.positions.get(known)

    def _lazy_position(self, index: OffsetRangeIndex, offset: int) -> int | None:
        """Return a position by the index; entries whose object is gone are removed on the way."""
        context, node_id = self._context, self._node.node_id
        found = index.floor(context.stream, node_id, offset)
        while found is not None:
            start, object_id = found
            position = self._node.positions.get(object_id)
            if position is not None:
                return position
            if context.is_gone(object_id):
                context.stats.dead_entries += index.remove(
                    context.stream, node_id, start, object_id
                )
            found = index.floor(context.stream, node_id, start - 1)
        return None

    # -- what is known

    def _is_known(self, position: int) -> bool:
        """Whether nothing has to be loaded to know what is there."""
        if position in self._known:
            return True
        context, object_id = self._context, self._node.object_ids[position]
        held = context.loader.kept(object_id)
        if held is not None:
            context.stats.kept += 1
            self._learn(position, held.slice_of(context.stream))
            return True
        if context.probe is not None:
            refused = context.probe.refuses(object_id)
            if refused:
                context.stats.filter_refusals += 1
                self._known[position] = None
                return True
            if refused is not None:
                self._perhaps.add(position)
        return False

    def _learn(self, position: int, held: tuple[int, int] | None) -> None:
        if position not in self._known:
            self._known[position] = held
            if held is not None:
                insort(self._starts, (held[0], position))

    # -- loading

    def _load(self, offset: int) -> None:
        """Send a preload wave if one is due, else the next wave of the search."""
        if self._may_preload(after_miss=True):
            self._preload_due = False
            self._preloads += 1
            wanted = self._preload_positions(self._at - 1)
            if wanted:
                self._fetch([], wanted)
                return
        wanted = self._next_wave(offset)
        if not wanted:
            return  # another look-up has just loaded them: all are known, or refused
        ahead: list[int] = []
        if self._context.options.preload == "eager" and self._may_preload(after_miss=False):
            self._preloads += 1
            ahead = self._preload_positions(self._last_seen(wanted[-1]))
        self._fetch(wanted, ahead)
        self._waves += 1
        hit = any(self._answers(at, offset) for at in wanted)
        self._missed = 0 if hit else self._missed + 1
        self._preload_due = True

    def _answers(self, position: int, offset: int) -> bool:
        held = self._known.get(position)
        return held is not None and held[0] <= offset < held[1]

    def _may_preload(self, after_miss: bool) -> bool:
        context = self._context
        return (
            context.preloads
            and not self._found
            and self._preloads < context.options.preloads
            and (not after_miss or (self._preload_due and context.options.preload == "miss"))
        )

    def _next_wave(self, offset: int) -> list[int]:
        """Return the next positions that have to be loaded; the cursor's own is the first."""
        context, end = self._context, len(self._node)
        size = end if context.whole_list else context.options.wave_size(self._waves, self._missed)
        if context.options.cut_waves:
            behind = bisect_right(self._starts, (offset, end))
            end = min([end, *(at for _, at in self._starts[behind : behind + 1])])
        wanted = []
        for position in range(self._at, max(end, self._at + 1)):
            if not self._is_known(position):
                wanted.append(position)
                if len(wanted) == size:
                    break
        return wanted

    def _last_seen(self, position: int) -> int:
        """Return the last position that is looked at after a wave up to `position`."""
        while position + 1 < len(self._node) and self._is_known(position + 1):
            position += 1
        return position

    def _preload_positions(self, last: int) -> list[int]:
        """Return far-off positions: from the end for a tail read, else spread evenly."""
        options, count = self._context.options, len(self._node)
        if self._context.tail:
            end = count - options.tail * (self._preloads - 1)
            found: Iterable[int] = range(max(end - options.tail, last + 1, 0), max(end, 0))
        else:
            steps = range(1, options.spread + 1)
            found = sorted({last + k * (count - 1 - last) // options.spread for k in steps})
        return [at for at in found if at > last and not self._is_known(at)]

    def _fetch(self, wanted: list[int], ahead: list[int]) -> None:
        """Load both together; a failure among the wanted is raised, one ahead is counted."""
        context, ids = self._context, self._node.object_ids
        wave = context.loader.fetch([ids[at] for at in (*wanted, *ahead)], context.image)
        stats = context.stats
        stats.waves += 1
        stats.loads += len(wanted) + len(ahead)
        stats.preloads += len(ahead)
        stats.joined += wave.joined
        stats.trace.append(
            WaveTrace(
                self._node.node_id,
                tuple(ids[at] for at in wanted),
                tuple(ids[at] for at in ahead),
            )
        )
        for position in wanted:
            if ids[position] in wave.failed:
                raise wave.failed[ids[position]]
        stats.failed_preloads += sum(ids[at] in wave.failed for at in ahead)
        for position in (*wanted, *ahead):
            self._look_into(position, wave)

    def _look_into(self, position: int, wave: Wave) -> None:
        loaded = wave.held.get(self._node.object_ids[position])
        if loaded is None:
            return
        context = self._context
        held = loaded.slice_of(context.stream)
        if held is None:
            context.stats.without_stream += 1
            context.stats.filter_false_positives += position in self._perhaps
        self._learn(position, held)
