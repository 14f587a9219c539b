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
    """A search with a cursor, a position (index) in a node's list of objects.

    A wave is several objects that are loaded at the same time. A preload is a wave, or a part of
    one, of objects far from the cursor: their slices tell where to continue.
    """

    def __init__(self, node: Node, context: SearchContext) -> None:
        """Begin a search in a node's list of objects, with nothing known of their contents."""
        self._node = node
        self._context = context
        self._cursor = 0
        # The slice (start, end) of the stream by position; None: the object lacks the stream.
        self._known_slices: dict[int, tuple[int, int] | None] = {}
        self._known_starts: list[tuple[int, int]] = []  # (start, position) of the slices, sorted
        self._filter_positives: set[int] = set()  # positions whose filter may have the stream
        self._has_advanced = False
        self._found_any = False
        self._wave_count = 0
        self._misses_in_a_row = 0
        self._preload_count = 0
        # A preload of far-off objects is due at once in a tail read, otherwise after a miss.
        self._preload_due = context.is_tail_read and context.options.tail_first
        context.stats.nodes += 1
        context.stats.listed += len(node)

    def find(self, offset: int, may_begin_before: bool) -> FoundSlice | None:
        """Return the next object of the node whose slice of the stream begins at `offset`, None if
        there is none. With `may_begin_before`, the slice may also begin before it and contain it.

        Each pass of the loop loads the object of the cursor or moves the cursor forward. Raises the
        exception of a failed load.
        """
        self._advance_cursor(offset)
        while self._cursor < len(self._node):
            if not self._resolve_without_load(self._cursor):
                self._load_next(offset)
                self._advance_cursor(offset)
                continue
            position, slice_range = self._cursor, self._known_slices[self._cursor]
            start, end = (0, 0) if slice_range is None else slice_range  # None: without the stream
            if end > offset:
                if start > offset or (start < offset and not may_begin_before):
                    return None  # slices ascend, so no later one begins at the offset
                self._found_any = True
                self._cursor += 1
                return FoundSlice(self._node.object_ids[position], start, end)
            self._cursor += 1
        return None

    # -- moving the cursor

    def _advance_cursor(self, offset: int) -> None:
        """Move the cursor forward to the last object known to begin at or before the offset."""
        context, is_first = self._context, not self._has_advanced
        self._has_advanced = True
        # "load-all" passes over no object; "sparse-index" moves the cursor once, as AutoMQ does.
        if context.strategy == "load-all" or (context.strategy == "sparse-index" and not is_first):
            return
        # From the slices known so far.
        target = self._cursor
        starts_up_to_offset = self._count_known_starts(offset)
        if starts_up_to_offset:
            _, position = self._known_starts[starts_up_to_offset - 1]
            target = max(target, position)
        # From the index: that of "sparse-index", or the one that lookups share.
        if context.strategy == "sparse-index" or context.index is not None:
            index_position = self._find_in_index(offset)
            target = max(target, index_position or 0)
            if is_first:
                context.stats.index_hits += index_position is not None
                context.stats.index_misses += index_position is None
        # `skipped` counts objects passed over by the first move, `jumps` the later moves.
        context.stats.skipped += target - self._cursor if is_first else 0
        context.stats.jumps += not is_first and target > self._cursor
        self._cursor = target

    def _count_known_starts(self, offset: int) -> int:
        """Return how many of the known slices begin at or before the offset."""
        # No position reaches the length of the list: this pair is after all with the same start.
        return bisect_right(self._known_starts, (offset, len(self._node)))

    def _find_in_index(self, offset: int) -> int | None:
        """Return the position of the last object that begins at or before the offset, by the index
        that lookups share; None if the index does not have one."""
        offset_index = self._context.index
        if offset_index is not None:
            return self._find_in_offset_index(offset_index, offset)
        sparse = self._context.sparse_indexes.get(self._node.node_id)
        object_id = None if sparse is None else sparse.floor(self._context.stream, offset)
        return None if object_id is None else self._node.positions.get(object_id)

    def _find_in_offset_index(self, index: OffsetRangeIndex, offset: int) -> int | None:
        """Return the position of the last object that begins at or before the offset, by an index
        that also serves lookups on other images. Entries of objects that this image lacks are
        skipped, and removed if the newest image lacks the object too."""
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

    def _resolve_without_load(self, position: int) -> bool:
        """Return whether an object's slice of the stream is known without a load, and record it. It
        may be known from this search or from the cache of loaded objects; or the object's bloom
        filter states that it lacks the stream."""
        if position in self._known_slices:
            return True
        context, object_id = self._context, self._node.object_ids[position]
        cached_ranges = context.loader.get_cached(object_id)
        if cached_ranges is not None:
            context.stats.kept += 1
            self._record_slice(position, cached_ranges.slice_of(context.stream))
            return True
        if context.probe is not None:
            refused = context.probe.refuses(object_id)
            if refused:
                context.stats.filter_refusals += 1
                self._known_slices[position] = None
                return True
            if refused is not None:  # None: the object has no filter yet
                self._filter_positives.add(position)
        return False

    def _record_slice(self, position: int, slice_range: tuple[int, int] | None) -> None:
        """Note which offsets the object at a position has of the stream, None if none."""
        if position not in self._known_slices:
            self._known_slices[position] = slice_range
            if slice_range is not None:
                start, _ = slice_range
                insort(self._known_starts, (start, position))

    # -- loading

    def _load_next(self, offset: int) -> None:
        """Load a wave of objects: far-off ones if a preload is due, otherwise those from the cursor
        on. With the option "eager", a preload has no wave of its own: its objects are loaded
        together with those from the cursor on."""
        preload = self._context.options.preload
        # With "miss", waves of the search and of far-off objects take turns until a slice is found.
        if preload == "miss" and self._preload_due and self._may_preload():
            self._preload_due = False
            self._preload_count += 1
            preload_positions = self._choose_preload_positions(after=self._cursor - 1)
            if preload_positions:
                self._load_wave([], preload_positions)
                return
        # The search goes on with the objects from the cursor on.
        search_positions = self._choose_search_positions(offset)
        if not search_positions:
            return  # all are known by now: other lookups loaded them, or filters refused them
        preload_positions = []
        if preload == "eager" and self._may_preload():
            self._preload_count += 1
            # Spread the preload over the list behind the objects that are or will be known.
            last_near = self._skip_known(search_positions[-1])
            preload_positions = self._choose_preload_positions(after=last_near)
        self._load_wave(search_positions, preload_positions)
        # The size of the next wave may depend on the number of waves, or of those that missed.
        self._wave_count += 1
        hit = any(self._slice_covers(position, offset) for position in search_positions)
        self._misses_in_a_row = 0 if hit else self._misses_in_a_row + 1
        self._preload_due = True

    def _slice_covers(self, position: int, offset: int) -> bool:
        """Return whether the object at a position is known to have the offset of the stream."""
        slice_range = self._known_slices.get(position)
        if slice_range is None:
            return False
        start, end = slice_range
        return start <= offset < end

    def _may_preload(self) -> bool:
        """Return whether far-off objects may still be loaded: only until a first slice is found."""
        context = self._context
        has_preloads_left = self._preload_count < context.options.preloads
        return context.uses_preloads and not self._found_any and has_preloads_left

    def _choose_search_positions(self, offset: int) -> list[int]:
        """Return the positions of the next wave: the first ones, from the cursor on, of objects
        that must be loaded, as many as the options allow."""
        options, end = self._context.options, len(self._node)
        max_count = end
        if not self._context.loads_whole_list:
            max_count = options.wave_size(self._wave_count, self._misses_in_a_row)
        if options.cut_waves:
            # Stop before the first object known to begin after the offset.
            starts_up_to_offset = self._count_known_starts(offset)
            if starts_up_to_offset < len(self._known_starts):
                _, first_after = self._known_starts[starts_up_to_offset]
                end = min(end, first_after)
        candidates = range(self._cursor, max(end, self._cursor + 1))  # at least the cursor's object
        unknown = (position for position in candidates if not self._resolve_without_load(position))
        return list(islice(unknown, max_count))

    def _skip_known(self, position: int) -> int:
        """Return the position before the next object behind `position` that must be loaded."""
        while position + 1 < len(self._node) and self._resolve_without_load(position + 1):
            position += 1
        return position

    def _choose_preload_positions(self, after: int) -> list[int]:
        """Return positions after `after` of objects that must be loaded: some at equal distances,
        or in a tail read (of a stream's end) a block at the end of the list."""
        options, count = self._context.options, len(self._node)
        if self._context.is_tail_read:
            # The first preload takes the last block of the list, each further one that before it.
            end = count - options.tail * (self._preload_count - 1)
            candidates: Iterable[int] = range(max(end - options.tail, after + 1, 0), max(end, 0))
        else:
            gap, spread = count - 1 - after, options.spread
            candidates = sorted({after + step * gap // spread for step in range(1, spread + 1)})
        later = (position for position in candidates if position > after)
        return [position for position in later if not self._resolve_without_load(position)]

    def _load_wave(self, search_positions: list[int], preload_positions: list[int]) -> None:
        """Load the objects of both kinds of positions at the same time, and record their slices. A
        failed load of the search raises; a failed preload, which is only a guess, is counted."""
        context, ids = self._context, self._node.object_ids
        searched = tuple(ids[position] for position in search_positions)
        preloaded = tuple(ids[position] for position in preload_positions)
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
        if slice_range is None:  # if a filter let the object pass, that was a false positive
            context.stats.without_stream += 1
            context.stats.filter_false_positives += position in self._filter_positives
        self._record_slice(position, slice_range)
