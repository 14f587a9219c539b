"""ObjectReader: how the ranges of a stream set object are loaded; one that reads from an image."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Container
from typing import Protocol

from bkstore.arguments import instance, number, shown
from bkstore.errors import CorruptionError, InvalidArgument, LoadFailed
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage


class ObjectReader(Protocol):
    """Loads what an object holds: the expensive step, an index block read from an object store.

    Called from several threads at a time, never twice at a time for one object. Whatever it
    raises fails the look-ups that wait for it.
    """

    def load(self, object_id: int, image: StreamImage) -> ObjectRanges:
        """Return an object's ranges; `image` is the one that the look-up works on."""
        ...


class ImageReader:
    """Reads from the object table of an image, as slowly and as badly as is asked for.

    `latency` is seconds a load, or a function of the object id. `failures` is the share of
    loads that fail (0.1, drawn from `seed`), the ids whose loads fail, or a function of the id.
    Failing loads raise `LoadFailed`, those of an object that the table lacks `CorruptionError`.

    >>> image = StreamImage.from_json({"streams": [], "stream_objects": [], "nodes": [
    ...     {"node_id": 1, "objects": [{"object_id": 5, "order_id": 5, "ranges": [[7, 0, 9]]}]}]})
    >>> ImageReader(image).load(5).slice_of(7)
    (0, 9)
    """

    def __init__(
        self,
        image: StreamImage,
        *,
        latency: float | Callable[[int], float] = 0.0,
        failures: float | Container[int] | Callable[[int], bool] = 0.0,
        seed: int = 0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        instance(StreamImage)("image", image)
        if not callable(latency):
            latency = number()("latency", latency)
        if not callable(failures) and not isinstance(failures, Container):
            failures = number(0, 1)("failures", failures)
        elif isinstance(failures, (str, bytes)):
            raise InvalidArgument(f"failures are object ids, not {shown(failures)}")
        self._image = image
        self._latency = latency
        self._failures = failures
        self._random = random.Random(seed)  # noqa: S311
        self._sleep = sleep
        self._lock = threading.Lock()
        self.loads = 0

    def load(self, object_id: int, image: StreamImage | None = None) -> ObjectRanges:
        """Return an object's ranges as `image` has them, the reader's own where none is given."""
        with self._lock:
            self.loads += 1
            fails = self._fails(object_id)
        wait = self._latency(object_id) if callable(self._latency) else self._latency
        if wait:
            self._sleep(wait)
        if fails:
            raise LoadFailed(f"object {object_id}: the load failed, as planned")
        found = (image or self._image).objects.get(object_id)
        if found is None:
            raise CorruptionError(
                None, None, f"object {object_id} is listed, but not in the image's object table"
            )
        return found

    def _fails(self, object_id: int) -> bool:
        if callable(self._failures):
            return self._failures(object_id)
        if isinstance(self._failures, (int, float)):
            return self._random.random() < self._failures
        return object_id in self._failures
