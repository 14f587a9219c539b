"""Endpoints `bookie/gc`, `gc_details`, `entry_location_compact`: garbage collection, compaction.

In BookKeeper: `TriggerGCService`, `GCDetailsService`, `SuspendCompactionService`,
`ResumeCompactionService`, `TriggerLocationCompactService`. A garbage collection pass that a request
starts runs after the answer. The details count all passes since the bookie was opened, also those
not started here.
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
from bkstore.storage.ledgers.garbage_pass import CompactionKind
from bkstore.wire.admin import query_parameters
from bkstore.wire.admin.messages import HttpError, HttpRequest, HttpResponse, json_response

LOG = logging.getLogger("bkstore.wire.admin")

_COMPACTION_PREFIX = "compaction of "
_KINDS: tuple[CompactionKind, ...] = ("major", "minor")


class BackgroundJobs:
    """Jobs in threads of their own, after the request that started them, one of each kind at a
    time. A failure is logged. Thread-safe."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="bkstore-admin-job")
        self._running: set[str] = set()
        self._lock = Lock()

    def start(self, kind: str, job: Callable[[], None]) -> bool:
        """Queue a job; return False, without queueing, while another of its kind runs."""
        with self._lock:
            if kind in self._running:
                return False
            self._running.add(kind)
        try:
            self._pool.submit(self._run_job, kind, job)
        except BaseException:
            self._running.discard(kind)
            raise
        return True

    def _run_job(self, kind: str, job: Callable[[], None]) -> None:
        """Run a job in its thread; failures go to the log."""
        try:
            job()
        except (BkstoreError, OSError) as error:
            LOG.warning("%s failed: %s", kind, error)
        except Exception:
            LOG.exception("%s failed", kind)
        finally:
            with self._lock:
                self._running.discard(kind)

    def is_running(self, kind: str) -> bool:
        """Return whether a job of this kind runs or is queued."""
        return kind in self._running

    def close(self) -> None:
        """Wait for the jobs, because the caller may close their bookie next."""
        self._pool.shutdown(wait=True)


class GarbageEndpoints:
    """Starts garbage collections and compactions of entry locations, and reports their state."""

    def __init__(self, collector: BackgroundCollector, background_jobs: BackgroundJobs) -> None:
        self._collector = collector
        self._bookie = collector.bookie
        self._background = background_jobs

    def trigger_gc(self, request: HttpRequest) -> HttpResponse:
        """Start a garbage collection pass, unless one that was requested runs already, as in
        BookKeeper. ``forceMajor`` and ``forceMinor`` in the body are the compactions to run."""
        options = query_parameters.parse_json_body(request) or {}
        major, minor = (_boolean_member(options, name) for name in ("forceMajor", "forceMinor"))
        self._collector.force(major=major, minor=minor)
        return json_response(f"Triggered GC on BookieServer: {self._bookie.bookie_id}")

    def show_gc_state(self, request: HttpRequest) -> HttpResponse:
        """Answer whether a requested pass runs, as text, as in BookKeeper."""
        return json_response({"is_in_force_gc": str(self._collector.is_forced).lower()})

    def show_gc_details(self, request: HttpRequest) -> HttpResponse:
        """Answer with a row for each of the garbage collectors that a real bookie has: one, or with
        db storage one a ledger directory. Here one does the work of all: the rows are equal."""
        passes, collector = self._bookie.storage.garbage_passes, self._collector
        row = {
            "forceCompacting": collector.is_forced,
            "majorCompacting": passes.running_kind == "major",
            "minorCompacting": passes.running_kind == "minor",
            # times are in milliseconds since 1970
            "lastMajorCompactionTime": int(passes.last_times["major"] * 1000),
            "lastMinorCompactionTime": int(passes.last_times["minor"] * 1000),
            "lastEntryLocationCompactionTime": int(collector.locations_compacted_at * 1000),
            "majorCompactionCounter": passes.counts["major"],
            "minorCompactionCounter": passes.counts["minor"],
            "entryLocationCompactionCounter": collector.location_compactions,
            "lastFailure": collector.problem,
        }
        return json_response([row for _ in self._bookie.storage.write_paths])

    def show_suspended(self, request: HttpRequest) -> HttpResponse:
        """Answer which compactions are suspended, as text, as in BookKeeper."""
        major, minor = (str(self._collector.is_suspended(kind)).lower() for kind in _KINDS)
        return json_response({"isMajorGcSuspended": major, "isMinorGcSuspended": minor})

    def suspend(self, request: HttpRequest) -> HttpResponse:
        """Suspend compactions, and stop running ones."""
        return self._switch_kinds(request, "suspend", self._collector.suspend)

    def resume(self, request: HttpRequest) -> HttpResponse:
        """Resume compactions that were suspended over HTTP."""
        return self._switch_kinds(request, "resume", self._collector.resume)

    def _switch_kinds(
        self, request: HttpRequest, verb: str, switch: Callable[[CompactionKind], None]
    ) -> HttpResponse:
        """Call `switch`, which suspends or resumes as `verb` says, for each compaction kind that
        the body sets to true, such as ``{"suspendMajor": true}``. Answer in BookKeeper's words."""
        options = query_parameters.parse_json_body(request)
        if options is None:
            raise HttpError(400, "Empty request body")
        flags = {kind: options.get(f"{verb}{kind.capitalize()}") for kind in _KINDS}
        if all(flag is None for flag in flags.values()):
            raise HttpError(400, f"No {verb}Major or {verb}Minor params found")
        if not all(flag is None or type(flag) is bool for flag in flags.values()):
            raise HttpError(400, f"{verb}Major and {verb}Minor are booleans")
        # In BookKeeper's text the part for minor has its comma also where it is the only one.
        bookie_id, message = self._bookie.bookie_id, ""
        for kind, separator in zip(_KINDS, ("", ", ")):
            if flags[kind]:
                switch(kind)
                message += (
                    f"{separator}{verb.capitalize()} {kind}GC on BookieServer: "
                    f"Bookie Server listening on {bookie_id} with id {bookie_id}"
                )
        return json_response(message)

    def trigger_location_compaction(self, request: HttpRequest) -> HttpResponse:
        """Start compactions of all location databases, or of those listed in the body; answer in
        BookKeeper's words."""
        options = query_parameters.parse_json_body(request)
        if options is None:
            raise HttpError(400, "the body is empty")
        is_wanted = options.get("entryLocationRocksDBCompact", False)
        databases = self._collector.location_indexes()
        listed = options.get("entryLocations", "")
        if type(is_wanted) is not bool or type(listed) is not str:
            raise HttpError(400, "entryLocationRocksDBCompact is a boolean, entryLocations a text")
        if not is_wanted:
            return HttpResponse.ok_text("Not trigger Entry Location RocksDB compact.")
        # the databases listed, or all; each gets a background job of its own
        paths = sorted(set(listed.strip().split(","))) if listed.strip() else sorted(databases)
        unknown = [path for path in paths if path not in databases]
        if unknown or not paths:
            known = f"the bookie's entry location databases are {[*databases]}"
            raise HttpError(400, f"{unknown[0]} is unknown: {known}" if unknown else known)
        for path in paths:
            compact = partial(self._collector.compact_locations, databases[path])
            self._background.start(_COMPACTION_PREFIX + path, compact)
        paths_text, end_text = (f": {listed}", ".") if listed.strip() else ("", "")
        message = f"Triggered entry Location RocksDB{paths_text} compact on bookie:"
        return json_response(f"{message}{self._bookie.bookie_id}{end_text}")

    def show_location_compactions(self, request: HttpRequest) -> HttpResponse:
        """Answer with database path -> whether its compaction runs."""
        is_running = self._background.is_running
        paths = self._collector.location_indexes()
        return json_response({path: is_running(_COMPACTION_PREFIX + path) for path in paths})


def _boolean_member(members: dict[str, Any], name: str) -> bool | None:
    """Return a member that is true or false, possibly as text, or None if it is missing."""
    if name not in members:
        return None
    text = str(members[name]).lower()
    if text not in ("true", "false"):
        raise HttpError(400, f"{name} is neither true nor false: {text[:60]!r}")
    return text == "true"
