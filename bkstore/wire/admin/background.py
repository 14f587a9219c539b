"""Background: jobs that a request starts and does not wait for, one of each kind at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from bkstore.errors import BkstoreError

__all__ = ["Background"]

LOG = logging.getLogger("bkstore.wire.admin")


class Background:
    """Runs jobs in threads of its own; remembers how the last of each kind ended. Thread-safe."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="bkstore-admin-job")
        self._running: set[str] = set()
        self._failures: dict[str, str | None] = {}
        self._lock = Lock()

    def start(self, kind: str, job: Callable[[], None]) -> bool:
        """Run a job soon; False, and nothing done, while another of its kind runs."""
        with self._lock:
            if kind in self._running:
                return False
            self._running.add(kind)
        try:
            self._pool.submit(self._run, kind, job)
        except BaseException:
            self._running.discard(kind)
            raise
        return True

    def _run(self, kind: str, job: Callable[[], None]) -> None:
        failure: str | None = "the job broke down"
        try:
            job()
            failure = None
        except (BkstoreError, OSError) as error:
            failure = str(error)
            LOG.warning("%s failed: %s", kind, error)
        except Exception:
            LOG.exception("%s failed", kind)
        finally:
            with self._lock:
                self._failures[kind] = failure
                self._running.discard(kind)

    def running(self, kind: str) -> bool:
        """Return whether a job of this kind runs, or waits to."""
        return kind in self._running

    def failure(self, kind: str) -> str | None:
        """Return why the last job of this kind failed, None if it did not, or none ran."""
        return self._failures.get(kind)

    def close(self) -> None:
        """Wait for what runs: a job works on a bookie that others may be about to close."""
        self._pool.shutdown(wait=True)
