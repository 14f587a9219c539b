"""Loader: objects loaded by a bounded pool, each once at a time, those of a wave together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from bkstore import forks
from bkstore.arguments import number, optional, whole
from bkstore.errors import LoadFailed
from bkstore.index.api import Closing
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.lookup.object_reader import ObjectReader


class Wave(NamedTuple):
    """What came of loads that were waited for together."""

    held: dict[int, ObjectRanges]
    failed: dict[int, BaseException]
    joined: int


class Loader(Closing):
    """Loads objects through `reader`; who asks for one that is being loaded waits for that load.

    `on_load(object_id, ranges, image)` is called once a load, before anyone gets it. Nothing of
    a failed load is kept. `keep` is how many loaded objects stay at hand (0: none).
    `timeout` is how many seconds a wave is waited for, None for ever; a load that is late goes
    on, and whoever asks next waits for it again.

    Threads: safe. Fork: closed in the child, which has none of the pool's `workers` threads.
    """

    def __init__(
        self,
        reader: ObjectReader,
        on_load: Callable[[int, ObjectRanges, StreamImage], None],
        *,
        workers: int = 16,
        keep: int = 0,
        timeout: float | None = None,
    ) -> None:
        self._reader = reader
        self._on_load = on_load
        self._keep = whole()("keep", keep)
        self._timeout = optional(number(above=True))("timeout", timeout)
        workers = whole(1)("workers", workers)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="bkstore-load")
        self._lock = threading.Lock()
        self._running: dict[int, Future[ObjectRanges]] = {}
        self._kept: OrderedDict[int, ObjectRanges] = OrderedDict()
        self._closed = False
        forks.register(self)

    def _forked(self) -> None:
        self._closed = True
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let the loads that were sent end, send no others. Idempotent."""
        with self._lock:
            was, self._closed = self._closed, True
        if was:
            return
        self._pool.shutdown(wait=True)

    def check_open(self) -> None:
        """Raise `IllegalOperation` once it is closed."""
        if self._closed:
            raise forks.closed("this stream look-up")

    def kept(self, object_id: int) -> ObjectRanges | None:
        """Return an object that is at hand, None if it has to be loaded."""
        if not self._keep:
            return None
        with self._lock:
            found = self._kept.get(object_id)
            if found is not None:
                self._kept.move_to_end(object_id)
            return found

    def forget(self, object_ids: Iterable[int]) -> None:
        """Let go of objects that are gone."""
        with self._lock:
            for object_id in object_ids:
                self._kept.pop(object_id, None)

    def fetch(self, object_ids: Iterable[int], image: StreamImage) -> Wave:
        """Load objects, all at once, and wait for all; failures are told, not raised."""
        wave = Wave({}, {}, 0)
        joined = 0
        futures = {}
        for object_id in object_ids:
            futures[object_id], old = self._begin(object_id, image)
            joined += old
        late = wait(futures.values(), self._timeout).not_done
        for object_id, future in futures.items():
            if future in late:
                wave.failed[object_id] = LoadFailed(
                    f"object {object_id}: not loaded within {self._timeout} s"
                )
            elif (error := future.exception()) is not None:
                wave.failed[object_id] = error
            else:
                wave.held[object_id] = future.result()
        return wave._replace(joined=joined)

    def _begin(self, object_id: int, image: StreamImage) -> tuple[Future[ObjectRanges], bool]:
        """Return the load of an object, and whether it was under way already."""
        with self._lock:
            running = self._running.get(object_id)
            if running is not None:
                return running, True
            self.check_open()
            future = self._pool.submit(self._load, object_id, image)
            self._running[object_id] = future
            return future, False

    def _load(self, object_id: int, image: StreamImage) -> ObjectRanges:
        """Load an object, on a thread of the pool.

        It is off the list of running loads before anyone can learn of its end: who tries again
        after a failure must not be given the same failure.
        """
        try:
            held = self._reader.load(object_id, image)
            self._put_aside(object_id, held)
            self._on_load(object_id, held, image)
        except BaseException:
            self.forget([object_id])
            raise
        finally:
            with self._lock:
                self._running.pop(object_id, None)
        return held

    def _put_aside(self, object_id: int, held: ObjectRanges) -> None:
        if self._keep:
            with self._lock:
                self._kept[object_id] = held
                while len(self._kept) > self._keep:
                    self._kept.popitem(last=False)
