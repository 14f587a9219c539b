"""NodeSearch: the search of one lookup in the object list of one node, in waves of loads.

The list is sorted by order id, and a stream's slices ascend with it. An object known to begin at or
before the wanted offset is therefore a lower bound: the object searched for is there or later. An
index with few entries makes the search slow, never wrong.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from itertools import islice

from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.streams.image.streams_and_nodes import Node
from bkstore.streams.lookup.object_loader import LoadedWave
from bkstore.streams.lookup.search_context import FoundSlice, SearchContext
from bkstore.streams.lookup.stats import WaveTrace


class NodeSearch:
    """A cursor in a node's list; `_slices` has the known slice (or None) at each position."""

    def __init__(self, node: Node, context: SearchContext) -> None:
        self._node = node
        self._context = context
        self._cursor = 0
        self._slices: dict[int, tuple[int, int] | None] = {}
        self._filter_positives: set[int] = set()
        self._starts: list[tuple[int, int]] = []
        self._has_jumped = False
        self._found_any = False
        self._wave_count = 0
        self._misses_in_a_row = 0
        self._preload_count = 0
        self._preload_due = context.is_tail_read and context.options.tail_first
        context.stats.nodes += 1
        context.stats.listed += len(node)

    def find(self, offset: int, contains: bool) -> FoundSlice | None:
        """Return the next object whose slice begins at `offset`, None if this node has none.

        With `contains` the slice may begin before. Each pass of the loop loads the object under the
        cursor or moves the cursor forward. Raises what a failed load raised.
        """
        self._advance(offset)
        while self._cursor < len(self._node):
            if not self._is_known(self._cursor):
                self._load_next(offset)
                self._advance(offset)
                continue
            slice_range = self._slices[self._cursor]
            if slice_range is not None and slice_range[1] > offset:
                if slice_range[0] > offset or (slice_range[0] < offset and not contains):
                    return None
                self._found_any = True
                self._cursor += 1
                return FoundSlice(self._node.object_ids[self._cursor - 1], *slice_range)
            self._cursor += 1
        return None

    # -- moving the cursor

    def _advance(self, offset: int) -> None:
        """Move the cursor to the last object known to begin at or before the offset."""
        context, first = self._context, not self._has_jumped
        self._has_jumped = True
        if context.strategy == "load-all" or (context.strategy == "sparse-index" and not first):
            return
        target, known_count = self._cursor, bisect_right(self._starts, (offset, len(self._node)))
        if known_count:
            target = max(target, self._starts[known_count - 1][1])
        if context.strategy == "sparse-index" or context.index is not None:
            index_position = self._shared_position(offset)
            target = max(target, index_position or 0)
            if first:
                context.stats.index_hits += index_position is not None
                context.stats.index_misses += index_position is None
        context.stats.skipped += target - self._cursor if first else 0
        context.stats.jumps += not first and target > self._cursor
        self._cursor = target

    def _shared_position(self, offset: int) -> int | None:
        """Return the position from the index shared by lookups, None if it has no entry."""
        index = self._context.index
        if index is not None:
            return self._lazy_position(index, offset)
        sparse = self._context.sparse_indexes.get(self._node.node_id)
        object_id = None if sparse is None else sparse.floor(self._context.stream, offset)
        return None if object_id is None else self._node.positions.get(object_id)

    def _lazy_position(self, index: OffsetRangeIndex, offset: int) -> int | None:
        """Return the position from the index; removes entries whose object is gone."""
        context, key = self._context, (self._context.stream, self._node.node_id)
        index_entry = index.floor(*key, offset)
        while index_entry is not None:
            start, object_id = index_entry
            position = self._node.positions.get(object_id)
            if position is not None:
                return position
            if context.is_gone(object_id):
                context.stats.dead_entries += index.remove(*key, start, object_id)
            index_entry = index.floor(*key, start - 1)
        return None

    # -- known slices

    def _is_known(self, position: int) -> bool:
        """Return whether a slice is known without a load; records what objects and filters say."""
        if position in self._slices:
            return True
        context, object_id = self._context, self._node.object_ids[position]
        kept_ranges = context.loader.get_cached(object_id)
        if kept_ranges is not None:
            context.stats.kept += 1
            self._record_slice(position, kept_ranges.slice_of(context.stream))
            return True
        if context.probe is not None:
            refused = context.probe.refuses(object_id)
            if refused:
                context.stats.filter_refusals += 1
                self._slices[position] = None
                return True
            if refused is not None:
                self._filter_positives.add(position)
        return False

    def _record_slice(self, position: int, slice_range: tuple[int, int] | None) -> None:
        if position not in self._slices:
            self._slices[position] = slice_range
            if slice_range is not None:
                insort(self._starts, (slice_range[0], position))

    # -- loading

    def _load_next(self, offset: int) -> None:
        """Load a preload wave if one is due, else the next wave of the search."""
        if self._may_preload(after_miss=True):
            self._preload_due = False
            self._preload_count += 1
            search_positions = self._preload_positions(self._cursor - 1)
            if search_positions:
                self._load_wave([], search_positions)
                return
        search_positions = self._next_wave(offset)
        if not search_positions:
            return  # all are known by now: loaded by another lookup, or refused by filters
        preload_positions: list[int] = []
        if self._context.options.preload == "eager" and self._may_preload(after_miss=False):
            self._preload_count += 1
            preload_positions = self._preload_positions(self._last_seen(search_positions[-1]))
        self._load_wave(search_positions, preload_positions)
        self._wave_count += 1
        hit = any(self._covers(position, offset) for position in search_positions)
        self._misses_in_a_row = 0 if hit else self._misses_in_a_row + 1
        self._preload_due = True

    def _covers(self, position: int, offset: int) -> bool:
        slice_range = self._slices.get(position)
        return slice_range is not None and slice_range[0] <= offset < slice_range[1]

    def _may_preload(self, after_miss: bool) -> bool:
        context = self._context
        return (
            context.uses_preloads
            and not self._found_any
            and self._preload_count < context.options.preloads
            and (not after_miss or (self._preload_due and context.options.preload == "miss"))
        )

    def _next_wave(self, offset: int) -> list[int]:
        options, size = self._context.options, len(self._node)
        end = size
        if not self._context.loads_whole_list:
            size = options.wave_size(self._wave_count, self._misses_in_a_row)
        if options.cut_waves:
            # Stop before the first object known to begin after the offset.
            next_start = bisect_right(self._starts, (offset, end))
            if next_start < len(self._starts):
                end = min(end, self._starts[next_start][1])
        positions = range(self._cursor, max(end, self._cursor + 1))
        return list(islice((index for index in positions if not self._is_known(index)), size))

    def _last_seen(self, position: int) -> int:
        """Return the last position of the known run that follows a wave up to `position`."""
        while position + 1 < len(self._node) and self._is_known(position + 1):
            position += 1
        return position

    def _preload_positions(self, last: int) -> list[int]:
        """Return unknown positions after `last`: at the end for a tail read, else spread evenly."""
        options, count = self._context.options, len(self._node)
        if self._context.is_tail_read:
            end = count - options.tail * (self._preload_count - 1)
            candidates: Iterable[int] = range(max(end - options.tail, last + 1, 0), max(end, 0))
        else:
            gap, spread = count - 1 - last, options.spread
            candidates = sorted({last + step * gap // spread for step in range(1, spread + 1)})
        return [index for index in candidates if index > last and not self._is_known(index)]

    def _load_wave(self, search_positions: list[int], preload_positions: list[int]) -> None:
        """Load both together; raises a failure among the wanted, counts one among the preloads."""
        context, ids = self._context, self._node.object_ids
        searched = tuple(ids[index] for index in search_positions)
        preloaded = tuple(ids[index] for index in preload_positions)
        wave = context.loader.fetch((*searched, *preloaded), context.image)
        stats = context.stats
        stats.waves += 1
        stats.loads += len(searched) + len(preloaded)
        stats.preloads += len(preloaded)
        stats.joined += wave.joined_count
        stats.trace.append(WaveTrace(self._node.node_id, searched, preloaded))
        for object_id in searched:
            if object_id in wave.failures:
                raise wave.failures[object_id]
        stats.failed_preloads += sum(object_id in wave.failures for object_id in preloaded)
        for position in (*search_positions, *preload_positions):
            self._record_loaded(position, wave)

    def _record_loaded(self, position: int, wave: LoadedWave) -> None:
        """Record the slice of a loaded object; nothing if its load failed."""
        loaded_ranges = wave.loaded.get(self._node.object_ids[position])
        if loaded_ranges is None:
            return
        context = self._context
        slice_range = loaded_ranges.slice_of(context.stream)
        if slice_range is None:
            context.stats.without_stream += 1
            context.stats.filter_false_positives += position in self._filter_positives
        self._record_slice(position, slice_range)
