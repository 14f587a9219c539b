"""ObjectReader: the interface for loading a stream set object's ranges, and one for an image."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Container
from typing import Protocol

from bkstore.arguments import describe_value, instance, number
from bkstore.errors import CorruptionError, InvalidArgument, LoadFailed
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage


class ObjectReader(Protocol):
    """Loads the ranges of an object: the expensive step, reading an index block from a store.

    Called from several threads, but from one for each object. An exception fails waiting lookups.
    """

    def load(self, object_id: int, image: StreamImage) -> ObjectRanges:
        """Return an object's ranges; `image` is the one that the lookup works on."""
        ...


class ImageReader:
    """Reads from the object table of an image, with simulated latency and failures.

    `latency` is the seconds per load, or a function of the id. `failures` is the share of loads
    that fail (such as 0.1, drawn from `seed`), the ids that fail, or a function of the id. A
    failing load raises `LoadFailed`, a load of an object that the table lacks `CorruptionError`.

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
        """Plan the loads: how long each takes, and which fail (a share, ids, or a function)."""
        instance(StreamImage)("image", image)
        if not callable(latency):
            latency = number()("latency", latency)
        if not callable(failures) and not isinstance(failures, Container):
            failures = number(0, 1)("failures", failures)
        elif isinstance(failures, (str, bytes)):  # containers, but not of ids
            raise InvalidArgument(f"failures must be object ids, not {describe_value(failures)}")
        self._image = image
        self._latency = latency
        self._failures = failures
        self._random = random.Random(seed)  # noqa: S311
        self._sleep = sleep
        self._lock = threading.Lock()
        self.loads = 0

    def load(self, object_id: int, image: StreamImage | None = None) -> ObjectRanges:
        """Return an object's ranges from `image`, or from the reader's own image, after the latency
        of `__init__`. Raises `LoadFailed` if this load is one of its failures."""
        with self._lock:  # of the count, and of the random numbers that choose failures
            self.loads += 1
            must_fail = self._load_fails(object_id)
        latency = self._latency(object_id) if callable(self._latency) else self._latency
        if latency:
            self._sleep(latency)
        if must_fail:
            raise LoadFailed(f"object {object_id}: the load failed, as planned")
        ranges = (image or self._image).objects.get(object_id)
        if ranges is None:
            reason = f"object {object_id} is listed, but not in the image's object table"
            raise CorruptionError(None, None, reason)
        return ranges

    def _load_fails(self, object_id: int) -> bool:
        """Return whether this load fails, as the test has planned."""
        if callable(self._failures):
            return self._failures(object_id)
        if isinstance(self._failures, (int, float)):
            return self._random.random() < self._failures
        return object_id in self._failures
