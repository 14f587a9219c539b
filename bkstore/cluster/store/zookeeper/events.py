"""A thread for what has to be done when something happened elsewhere.

kazoo calls listeners and watches on threads of its own, one after another, and a listener that
asks something there waits for ever. So they only put a call here.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable
from itertools import count

from bkstore.errors import BkstoreError

_log = logging.getLogger(__name__)


class Events:
    """Calls that are made in turn by one thread, which starts with the first of them.

    A call that takes long delays the others. What a call raises is logged, and the others go on.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def call(self, what: Callable[[], None], after: float = 0.0) -> None:
        """Have `what` called, `after` seconds from now; nothing happens once this is closed."""
        with self._changed:
            if self._ended:
                return
            heapq.heappush(self._waiting, (time.monotonic() + after, next(self._numbers), what))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Drop what waits, and return when no call is under way (but that of the caller)."""
        with self._changed:
            self._ended = True
            self._waiting.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (what := self._next()) is not None:
            try:
                what()
            except BkstoreError as error:
                _log.warning("%s: %s", self._name, error)
            except Exception:  # noqa: BLE001  a caller's own function
                _log.exception("%s: a call failed", self._name)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._ended:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(left)
        return None
