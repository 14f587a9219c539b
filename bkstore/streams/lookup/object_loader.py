"""ObjectLoader: loads several objects at once by threads, and no object twice at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from bkstore import forks
from bkstore.arguments import integer, number, optional
from bkstore.errors import LoadFailed
from bkstore.index.api import Closeable
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.lookup.object_reader import ObjectReader


class LoadedWave(NamedTuple):
    """The results, by object id, of loads that were waited for together. `joined_count` of the
    loads were already running for other lookups."""

    loaded: dict[int, ObjectRanges]
    failures: dict[int, BaseException]
    joined_count: int


class ObjectLoader(Closeable):
    """Loads objects through `reader`; requests for an object that is being loaded share the load.

    `on_load(object_id, ranges, image)` is called once per load, before any caller gets the object.
    Failed loads leave nothing. `max_cached` is the number of loaded objects to cache. `timeout` is
    the maximum wait for a wave in seconds, or None; a late load continues, and the next request
    waits for it. Threads: safe. Fork: closed in the child, which has none of the `workers` threads.
    """

    def __init__(
        self,
        reader: ObjectReader,
        on_load: Callable[[int, ObjectRanges, StreamImage], None],
        *,
        workers: int = 16,
        max_cached: int = 0,
        timeout: float | None = None,
    ) -> None:
        self._reader = reader
        self._on_load = on_load
        self._max_cached = integer()("max_cached", max_cached)
        self._timeout = optional(number(above=True))("timeout", timeout)
        workers = integer(1)("workers", workers)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="bkstore-load")
        self._lock = threading.Lock()
        self._running_loads: dict[int, Future[ObjectRanges]] = {}
        self._cached: OrderedDict[int, ObjectRanges] = OrderedDict()
        self._closed = False
        forks.register(self)

    def _forked(self) -> None:
        self._closed = True
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait for the running loads, and refuse others. Idempotent."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._pool.shutdown(wait=True)

    def check_open(self) -> None:
        """Raise `IllegalOperation` if the loader is closed."""
        if self._closed:
            raise forks.closed_error("this stream lookup")

    def get_cached(self, object_id: int) -> ObjectRanges | None:
        """Return a cached object, None if it has to be loaded."""
        if not self._max_cached:
            return None
        with self._lock:
            ranges = self._cached.get(object_id)
            if ranges is not None:
                self._cached.move_to_end(object_id)
            return ranges

    def forget(self, object_ids: Iterable[int]) -> None:
        """Drop objects from the cache."""
        with self._lock:
            for object_id in object_ids:
                self._cached.pop(object_id, None)

    def fetch(self, object_ids: Iterable[int], image: StreamImage) -> LoadedWave:
        """Load objects concurrently and wait for all of them, at most until the timeout. The result
        has the ranges of each loaded object, and the error of each load that failed or is late."""
        loads = {object_id: self._start_load(object_id, image) for object_id in object_ids}
        wave = LoadedWave({}, {}, sum(was_running for _, was_running in loads.values()))
        late = wait([future for future, _ in loads.values()], self._timeout).not_done
        for object_id, (future, _) in loads.items():
            if future in late:
                reason = f"object {object_id}: not loaded within {self._timeout} s"
                wave.failures[object_id] = LoadFailed(reason)
            elif (error := future.exception()) is not None:
                wave.failures[object_id] = error
            else:
                wave.loaded[object_id] = future.result()
        return wave

    def _start_load(self, object_id: int, image: StreamImage) -> tuple[Future[ObjectRanges], bool]:
        """Return the future of an object's load, and whether it was already running."""
        with self._lock:
            running = self._running_loads.get(object_id)
            if running is not None:
                return running, True
            self.check_open()
            future = self._pool.submit(self._load_object, object_id, image)
            self._running_loads[object_id] = future
            return future, False

    def _load_object(self, object_id: int, image: StreamImage) -> ObjectRanges:
        """Load an object, on a thread of the pool. The load is removed from `_running_loads` before
        its future completes, so that a retry after a failure starts a new load."""
        try:
            ranges = self._reader.load(object_id, image)
            self._cache_object(object_id, ranges)
            self._on_load(object_id, ranges, image)
        except BaseException:
            self.forget([object_id])  # `on_load` may have failed after the object was cached
            raise
        finally:
            with self._lock:
                self._running_loads.pop(object_id, None)
        return ranges

    def _cache_object(self, object_id: int, ranges: ObjectRanges) -> None:
        if self._max_cached:
            with self._lock:
                self._cached[object_id] = ranges
                while len(self._cached) > self._max_cached:
                    self._cached.popitem(last=False)
