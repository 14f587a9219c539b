"""StreamLookup: find the objects that hold offsets start..end of a stream with few loads.

Answers follow AutoMQ's `getObjects` (`S3StreamsMetadataImage`), the search AutoMQ/automq#2731. An
answer is a chain: each object begins where the one before it ends. It never crosses a hole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bkstore.arguments import instance, interface, optional
from bkstore.ids import check_integer
from bkstore.index.api import Closeable
from bkstore.index.offset_range import OffsetRangeIndex
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.image.streams_and_nodes import Stream
from bkstore.streams.lookup.answer_chain import build_chain, check_answer
from bkstore.streams.lookup.object_loader import ObjectLoader
from bkstore.streams.lookup.object_reader import ObjectReader
from bkstore.streams.lookup.options import LookupOptions, Strategy, check_strategy
from bkstore.streams.lookup.result import LookupObserver, LookupResult
from bkstore.streams.lookup.search_context import SearchContext
from bkstore.streams.lookup.sparse_index import SparseRangeIndex
from bkstore.streams.lookup.stats import LookupTotals, QueryStats
from bkstore.streams.lookup.stream_filters import ObjectFilters

_check_image = instance(StreamImage)
_check_reader = interface("ObjectReader", "load")
_check_options = optional(instance(LookupOptions))


class StreamLookup(Closeable):
    """Answers `get_objects` from an image, with an index and filters that outlive queries.

    Each strategy after ``partial`` includes the one before it:

    - ``load-all`` loads all objects of a node at once
    - ``sparse-index`` loads all from a position that a `SparseRangeIndex` gives, as AutoMQ does
    - ``partial`` loads some at a time
    - ``preload`` also loads far-off objects after a miss
    - ``index`` also takes a start position from an `OffsetRangeIndex`, which loads fill
    - ``bloom`` also skips objects whose filter says that they lack the stream

    `StreamLookup` objects over the same objects may share `index` and `filters`. A query works on
    the image that was newest when it began. Threads: safe. Fork: closed in the child.

    >>> from bkstore.streams.lookup.object_reader import ImageReader
    >>> image = StreamImage.from_json({
    ...     "streams": [{"stream_id": 7, "start_offset": 0, "end_offset": 30, "ranges": [
    ...         {"range_index": 0, "epoch": 0, "start": 0, "end": 30, "node_id": 1}]}],
    ...     "nodes": [{"node_id": 1, "objects": [
    ...         {"object_id": 5, "order_id": 5, "ranges": [[7, 0, 10]]},
    ...         {"object_id": 6, "order_id": 6, "ranges": [[7, 10, 30]]}]}],
    ...     "stream_objects": []})
    >>> with StreamLookup(image, ImageReader(image)) as lookup:
    ...     result = lookup.get_objects(7, 4, 20, 10)
    >>> [tuple(found) for found in result.objects], result.covered_to, result.stats.loads
    ([('SSO', 5, 0, 10), ('SSO', 6, 10, 30)], 30, 2)
    """

    def __init__(
        self,
        image: StreamImage,
        reader: ObjectReader,
        strategy: Strategy = "bloom",
        *,
        options: LookupOptions | None = None,
        index: OffsetRangeIndex | None = None,
        filters: ObjectFilters | None = None,
        observer: LookupObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare look-ups on `image`, whose objects `reader` loads; nothing is loaded yet."""
        self.strategy = check_strategy("strategy", strategy)
        self.options = _check_options("options", options) or LookupOptions()
        self.index = OffsetRangeIndex() if index is None else index
        self.filters = ObjectFilters() if filters is None else filters
        self.totals = LookupTotals()
        self._observer = observer
        self._clock = clock
        self._image: StreamImage = _check_image("image", image)
        self._update_lock = threading.Lock()
        self._sparse_of_node: dict[int, SparseRangeIndex] = {}
        self._loader = ObjectLoader(
            _check_reader("reader", reader),
            self._on_load,
            workers=self.options.workers,
            max_cached=self.options.keep_objects,
            timeout=self.options.load_timeout,
        )
        if strategy == "sparse-index":
            self._update_sparse_indexes(StreamImage(), image)  # all objects are new

    def close(self) -> None:
        """Stop the loading threads. Idempotent."""
        self._loader.close()

    # -- the image

    @property
    def image(self) -> StreamImage:
        """The newest image."""
        return self._image

    def update(self, image: StreamImage) -> None:
        """Switch to the next image, and evict objects that it lacks from cache, index and filters.
        Queries that are running keep the image they began with."""
        _check_image("image", image)
        with self._update_lock:
            old_image, self._image = self._image, image
            removed_ids = image.removed_since(old_image)
            self._evict_objects(removed_ids)
            if self.strategy == "sparse-index":
                self._update_sparse_indexes(old_image, image)

    def _evict_objects(self, object_ids: set[int]) -> None:
        self.filters.drop(object_ids)
        self.index.forget_objects(object_ids)
        self._loader.forget(object_ids)

    def _update_sparse_indexes(self, old_image: StreamImage, image: StreamImage) -> None:
        """Add each node's new objects to its own sparse index, and remove those that are gone."""
        removed_ids = image.removed_since(old_image)
        for sparse_index in self._sparse_of_node.values():
            sparse_index.remove(removed_ids)
        for object_id in image.added_since(old_image):
            ranges, node_id = image.objects.get(object_id), image.node_of[object_id]
            # The ranges come from the image, without a load: a real node knows what it uploaded.
            if ranges is not None:
                if node_id not in self._sparse_of_node:
                    self._sparse_of_node[node_id] = SparseRangeIndex(self.options.sparse_bytes)
                self._sparse_of_node[node_id].add(object_id, ranges)

    def _on_load(self, object_id: int, ranges: ObjectRanges, image: StreamImage) -> None:
        """Add a loaded object to index and filters, unless it has left the newest image by now."""
        if self.strategy in ("index", "bloom"):
            node_id = image.node_of[object_id]
            self.index.put_object(node_id, object_id, ranges.streams, ranges.starts)
        if self.strategy == "bloom":
            self.filters.build(object_id, ranges.streams)
        # Checked after the object was added: an update that comes later evicts it by itself.
        if self._is_gone(object_id):
            self._evict_objects({object_id})

    def _is_gone(self, object_id: int) -> bool:
        return object_id not in self._image.node_of

    # -- queries

    @property
    def stats(self) -> dict[str, float]:
        """Counts of all lookups so far, and sizes and evictions of index and filters."""
        index, filters = self.index, self.filters
        return {
            **self.totals.as_dict(),
            "index_items": index.items,
            "index_entries": index.entries,
            **{f"index_evictions_{reason}": count for reason, count in index.evictions.items()},
            "filters": len(filters),
            "filter_bytes": filters.nbytes,
            "filter_evictions": filters.evictions,
        }

    def get_objects(self, stream: int, start: int, end: int, limit: int) -> LookupResult:
        """Return the objects that hold [start, end) of a stream, at most `limit`, in order.

        ``end=-1`` means as far as the limit allows. The status is "invalid" for a negative stream
        or limit, a start after the end, an unknown stream, and a start before the stream's. Raises
        the exception of a failed load, which the next lookup retries; `IllegalOperation` if closed.
        """
        for name, value in (("stream", stream), ("start", start), ("end", end), ("limit", limit)):
            if type(value) is not int:
                check_integer(value, name)
        started, stats = self._clock(), QueryStats()
        result = "error"  # what the totals count if an exception follows
        try:
            self._loader.check_open()
            answer = self._answer_lookup(stream, start, end, limit, stats)
            result = answer.kind
            return answer
        finally:
            stats.seconds = self._clock() - started
            self.totals.add(result, stats)
            if self._observer is not None:
                self._observer.observe(result, stats)

    def _answer_lookup(
        self, stream: int, start: int, end: int, limit: int, stats: QueryStats
    ) -> LookupResult:
        """Return the result of one lookup on the current image; adds its costs to `stats`."""
        image = self._image
        metadata = image.streams.get(stream)
        is_valid = stream >= 0 and limit >= 0 and (end == -1 or start <= end)
        if metadata is None or not is_valid or start < metadata.start_offset:
            return LookupResult("invalid", [], covered_to=None, satisfied=False, stats=stats)
        if limit == 0 or start == end:
            return LookupResult("ok", [], covered_to=None, satisfied=False, stats=stats)
        # Find the objects, and check that they follow each other without a gap.
        context = self._new_context(image, metadata, end, stats)
        objects = build_chain(context, metadata, start, end, limit)
        check_answer(objects, start, limit)
        stats.objects = len(objects)
        if not objects:
            return LookupResult("ok", [], covered_to=None, satisfied=False, stats=stats)
        covered_to = objects[-1].end
        is_satisfied = len(objects) == limit or (end != -1 and covered_to >= end)
        return LookupResult("ok", objects, covered_to, is_satisfied, stats)

    def _new_context(
        self, image: StreamImage, stream: Stream, end: int, stats: QueryStats
    ) -> SearchContext:
        """Return what the searches of one lookup, in the lists of several nodes, have in common.
        With `end` -1, or the stream's end, the lookup is a tail read: it reads up to the end."""
        return SearchContext(
            image=image,
            stream=stream.stream_id,
            is_tail_read=end in (-1, stream.end_offset),
            strategy=self.strategy,
            options=self.options,
            loader=self._loader,
            stats=stats,
            index=self.index if self.strategy in ("index", "bloom") else None,
            probe=self.filters.probe(stream.stream_id) if self.strategy == "bloom" else None,
            sparse_indexes=self._sparse_of_node,
            is_gone=self._is_gone,
        )
