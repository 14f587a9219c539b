"""`bookie/gc`, `gc_details`, `entry_location_compact`: starting them, and how they go.

Upstream: `TriggerGCService`, `GCDetailsService`, `SuspendCompactionService`,
`ResumeCompactionService`, `TriggerLocationCompactService`. A pass runs after the answer; details
count all passes since the bookie was opened, whoever asked for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.errors import BkstoreError
from bkstore.storage.ledgers.garbage_pass import Kind
from bkstore.wire.admin import parameters
from bkstore.wire.admin.messages import Answer, Refused, Request, json_answer

LOG = logging.getLogger("bkstore.wire.admin")

_COMPACTION = "compaction of "
_KINDS: tuple[Kind, ...] = ("major", "minor")


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

    def __init__(self, collector: BackgroundCollector, background: Background) -> None:
        self._collector = collector
        self._bookie = collector.bookie
        self._background = background

    # -- garbage collection

    def collect(self, request: Request) -> Answer:
        """Start a pass; one that runs already is not joined by a second, as upstream."""
        asked = parameters.body_object(request) or {}
        self._collector.force(
            major=_truth(asked, "forceMajor"),
            minor=_truth(asked, "forceMinor"),
        )
        return json_answer(f"Triggered GC on BookieServer: {self._bookie.bookie_id}")

    def collecting(self, request: Request) -> Answer:
        """Answer whether a pass runs; as text, as upstream."""
        return json_answer({"is_in_force_gc": str(self._collector.is_forced).lower()})

    def details(self, request: Request) -> Answer:
        """Answer with the same state for each garbage collector: one, or a directory of db."""
        passes, collector = self._bookie.storage.garbage_passes, self._collector
        row = {
            "forceCompacting": collector.is_forced,
            "majorCompacting": passes.running == "major",
            "minorCompacting": passes.running == "minor",
            "lastMajorCompactionTime": int(passes.last["major"] * 1000),
            "lastMinorCompactionTime": int(passes.last["minor"] * 1000),
            "lastEntryLocationCompactionTime": int(collector.locations_compacted_at * 1000),
            "majorCompactionCounter": passes.counts["major"],
            "minorCompactionCounter": passes.counts["minor"],
            "entryLocationCompactionCounter": collector.location_compactions,
            "lastFailure": collector.problem,
        }
        return json_answer([row for _ in self._bookie.storage.paths])

    def suspended(self, request: Request) -> Answer:
        """Answer which compactions are suspended; as text, as upstream."""
        state = {kind: str(self._collector.is_suspended(kind)).lower() for kind in _KINDS}
        return json_answer(
            {"isMajorGcSuspended": state["major"], "isMinorGcSuspended": state["minor"]}
        )

    def suspend(self, request: Request) -> Answer:
        """Suspend compactions; those that run end."""
        return self._switch(request, "suspend", self._collector.suspend)

    def resume(self, request: Request) -> Answer:
        """Let compactions that were suspended over HTTP begin again."""
        return self._switch(request, "resume", self._collector.resume)

    def _switch(self, request: Request, verb: str, switch: Callable[[Kind], None]) -> Answer:
        """Switch the kinds that the body names; the answer is worded as upstream's."""
        asked = parameters.body_object(request)
        if asked is None:
            raise Refused(400, "Empty request body")
        wishes = {kind: asked.get(f"{verb}{kind.capitalize()}") for kind in _KINDS}
        if all(wish is None for wish in wishes.values()):
            raise Refused(400, f"No {verb}Major or {verb}Minor params found")
        if not all(wish is None or type(wish) is bool for wish in wishes.values()):
            raise Refused(400, f"{verb}Major and {verb}Minor are booleans")
        name, answer = self._bookie.bookie_id, ""
        for kind, lead in zip(_KINDS, ("", ", ")):
            if wishes[kind]:
                switch(kind)
                answer += (
                    f"{lead}{verb.capitalize()} {kind}GC on BookieServer: "
                    f"Bookie Server listening on {name} with id {name}"
                )
        return json_answer(answer)

    # -- entry locations

    def compact(self, request: Request) -> Answer:
        """Start compactions of all databases, or of those that the body names."""
        asked = parameters.body_object(request)
        if asked is None:
            raise Refused(400, "the body is empty")
        wanted = asked.get("entryLocationRocksDBCompact", False)
        places = self._collector.location_indexes()
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
            compact = partial(self._collector.compact_locations, places[place])
            self._background.start(_COMPACTION + place, compact)
        which, end = (f": {named}", ".") if named.strip() else ("", "")
        said = f"Triggered entry Location RocksDB{which} compact on bookie:"
        return json_answer(f"{said}{self._bookie.bookie_id}{end}")

    def compacting(self, request: Request) -> Answer:
        """Answer with path -> whether a compaction of it runs."""
        running = self._background.running
        places = self._collector.location_indexes()
        return json_answer({place: running(_COMPACTION + place) for place in places})


def _truth(asked: dict[str, Any], name: str) -> bool | None:
    """Return a member that says true or false, as text too; None where it is not there."""
    if name not in asked:
        return None
    value = str(asked[name]).lower()
    if value not in ("true", "false"):
        raise Refused(400, f"{name} is neither true nor false: {value[:60]!r}")
    return value == "true"
