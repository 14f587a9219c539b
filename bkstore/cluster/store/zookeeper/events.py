"""A thread that runs the reactions to ZooKeeper's events.

kazoo calls listeners and watches one after another on its own threads; a listener that sends a
request there would wait forever. So listeners only queue a call here.
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


class EventThread:
    """Runs queued calls one by one in a thread, which starts with the first. A slow call delays the
    others. An exception of a call is logged, and the others go on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of (when the call is due, call number, function)."""
        self._call_numbers = count()  # calls that are due at the same time keep their order
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False

    def call(self, callback: Callable[[], None], delay_seconds: float = 0.0) -> None:
        """Queue a call of `callback` in `delay_seconds`; does nothing once this is closed."""
        with self._changed:
            if self._ended:
                return
            due_at = time.monotonic() + delay_seconds
            heapq.heappush(self._queue, (due_at, next(self._call_numbers), callback))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_calls, name=self._name, daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Drop queued calls and wait for a running one, unless it is the caller."""
        with self._changed:
            self._ended = True
            self._queue.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run_calls(self) -> None:
        """Run the calls in the order of their times, until the thread is closed."""
        while (call := self._next_call()) is not None:
            try:
                call()
            except BkstoreError as error:
                _log.warning("%s: %s", self._name, error)
            except Exception:  # noqa: BLE001  a caller's own function
                _log.exception("%s: a call failed", self._name)

    def _next_call(self) -> Callable[[], None] | None:
        """Wait for the next call that is due and return it; None once this is closed."""
        with self._changed:
            while not self._ended:
                if not self._queue:
                    self._changed.wait()
                    continue
                due_at, _, call = self._queue[0]
                delay_seconds = due_at - time.monotonic()
                if delay_seconds <= 0:
                    heapq.heappop(self._queue)
                    return call
                self._changed.wait(delay_seconds)
        return None
