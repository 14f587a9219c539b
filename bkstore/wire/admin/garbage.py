"""`bookie/gc`, `gc_details`, `entry_location_compact`: starting them, and how they go.

Upstream: `TriggerGCService`, `GCDetailsService`, `TriggerLocationCompactService`. A pass runs
after the answer; details count all passes since the bookie was opened, whoever asked for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BkstoreError
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.garbage_collection import MAJOR_THRESHOLD, MINOR_THRESHOLD
from bkstore.wire.admin import parameters
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer

if TYPE_CHECKING:
    from bkstore.index.rocks import RocksIndex

__all__ = ["Background", "GarbageEndpoints"]

LOG = logging.getLogger("bkstore.wire.admin")

GC = "garbage collection"
COMPACTION = "compaction of "


class Background:
    """Jobs that a request starts and does not wait for, one of each kind at a time. Thread-safe.

    They run in threads of their own; how the last of each kind ended is remembered.
    """

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


class GarbageEndpoints:
    """Starts garbage collection and compactions of entry locations, and tells of them."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore | None,
        background: Background,
    ) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._background = background
        self._compactions = 0
        """Of entry locations."""
        self._compacted = time.time()

    # -- garbage collection

    def collect(self, request: Request) -> Answer:
        """Start a pass; one that runs already is not joined by a second, as upstream."""
        asked = parameters.body_object(request) or {}
        major, minor = (_truth(asked, name) for name in ("forceMajor", "forceMinor"))
        phase = "major" if major else "minor" if minor else None
        self._background.start(GC, partial(self._collect, phase))
        return json_answer(f"Triggered GC on BookieServer: {self._bookie.bookie_id}")

    def _collect(self, phase: str | None) -> None:
        """Collect garbage: what the store does not have is deleted, without one nothing is."""
        thresholds = {"major": MAJOR_THRESHOLD, "minor": MINOR_THRESHOLD, None: None}
        live = None if self._metadata is None else self._metadata.ledgers
        self._bookie.collect_garbage(live, threshold=thresholds[phase])

    def collecting(self, request: Request) -> Answer:
        """Answer whether a pass runs; as text, as upstream."""
        return json_answer({"is_in_force_gc": str(self._background.running(GC)).lower()})

    def details(self, request: Request) -> Answer:
        """Answer with the same state for each garbage collector: one, or a directory of db."""
        passes = self._bookie.storage.garbage_passes
        row = {
            "forceCompacting": self._background.running(GC),
            "majorCompacting": passes.running == "major",
            "minorCompacting": passes.running == "minor",
            "lastMajorCompactionTime": int(passes.last["major"] * 1000),
            "lastMinorCompactionTime": int(passes.last["minor"] * 1000),
            "lastEntryLocationCompactionTime": int(self._compacted * 1000),
            "majorCompactionCounter": passes.counts["major"],
            "minorCompactionCounter": passes.counts["minor"],
            "entryLocationCompactionCounter": self._compactions,
            "lastFailure": self._background.failure(GC),
        }
        return json_answer([row for _ in self._bookie.storage.paths])

    # -- entry locations

    def _databases(self) -> dict[str, RocksIndex]:
        """Return the index of each `locations` database; empty where storage is not db."""
        storage = self._bookie.storage
        if storage.storage != "db":
            return {}
        indexes = (cast("RocksIndex", path.index) for path in storage.paths)
        return {str(at / "locations"): one for at, one in zip(self._bookie.place.index, indexes)}

    def compact(self, request: Request) -> Answer:
        """Start compactions of all databases, or of those that the body names."""
        asked = parameters.body_object(request)
        if asked is None:
            raise Refused(400, "the body is empty")
        wanted, places = asked.get("entryLocationRocksDBCompact", False), self._databases()
        named = asked.get("entryLocations", "")
        if type(wanted) is not bool or type(named) is not str:
            raise Refused(400, "entryLocationRocksDBCompact is a boolean, entryLocations a text")
        if not wanted:
            return Answer.plain("Not trigger Entry Location RocksDB compact.")
        chosen = sorted(set(named.strip().split(","))) if named.strip() else sorted(places)
        unknown = [place for place in chosen if place not in places]
        if unknown or not chosen:
            what = f"{unknown[0]} is none" if unknown else "there is none"
            raise Refused(400, f"{what} of the bookie's entry location databases {[*places]}")
        for place in chosen:
            self._background.start(COMPACTION + place, partial(self._compact, places[place]))
        which, end = (f": {named}", ".") if named.strip() else ("", "")
        said = f"Triggered entry Location RocksDB{which} compact on bookie:"
        return json_answer(f"{said}{self._bookie.bookie_id}{end}")

    def _compact(self, index: RocksIndex) -> None:
        index.compact_locations()
        self._compactions += 1
        self._compacted = time.time()

    def compacting(self, request: Request) -> Answer:
        """Answer with path -> whether a compaction of it runs."""
        running = self._background.running
        return json_answer({place: running(COMPACTION + place) for place in self._databases()})


def _truth(asked: dict[str, Any], name: str) -> bool:
    """Return a member that says true or false, as text too; True where it is not there."""
    value = str(asked.get(name, True)).lower()
    if value not in ("true", "false"):
        raise Refused(400, f"{name} is neither true nor false: {value[:60]!r}")
    return value == "true"
