"""BackgroundCollector: collects a bookie's garbage (`bookie/GarbageCollectorThread`)."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from bkstore import forks
from bkstore.arguments import instance, optional
from bkstore.cluster.garbage.deleted_ledgers import DeletedLedgerFinder
from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.cluster.garbage.schedule import CompactionSchedule
from bkstore.cluster.garbage.stats import GarbageStats
from bkstore.cluster.store.api import MetadataStore, check_store
from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.compaction_throttle import CompactionThrottle
from bkstore.storage.ledgers.garbage_pass import (
    CompactionKind,
    CompactionOptions,
    GarbagePass,
    GarbageReport,
    MarkSuspects,
)

if TYPE_CHECKING:
    from bkstore.index.rocks import RocksIndex

LOG = logging.getLogger(__name__)

_check_options = optional(instance(GarbageOptions))


class BackgroundCollector(Closeable):
    """Runs passes of garbage collection over a bookie, in a thread of its own.

    `store` decides which ledgers are deleted (`deleted_ledgers`); without a store none is. If its
    answers are incomplete, a pass deletes no ledger, which the log, `problem` and `stats` report;
    it still removes logs without live ledgers, and compacts. A pass closes the current entry log if
    it would collect it once closed.

    `start` starts the schedule; `force` requests a pass at once, `run_pass` runs one and waits.
    `suspend` stops a running compaction, and prevents others until `resume`; so does `close`, to be
    called before the bookie is closed: records copied by then are moved, the rest of the log stays.
    Threads: all calls are safe; one pass runs at a time. Fork: closed in the child.
    """

    def __init__(
        self,
        bookie: Bookie,
        store: MetadataStore | None = None,
        options: GarbageOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bookie: Bookie = instance(Bookie)("bookie", bookie)
        self.options = _check_options("options", options) or GarbageOptions()
        self.stats = GarbageStats()
        self.problem: str | None = None
        """Why the last pass failed or could not decide which ledgers are deleted, or None."""
        self.on_problem_changed: Callable[[str | None], object] = bool  # does nothing
        """Called with the problem when one occurs, and with None when it is resolved."""
        self.location_compactions = 0
        self.locations_compacted_at = time.time()
        self._store = optional(check_store)("store", store)
        self._clock = clock
        self._schedule = CompactionSchedule(self.options, clock())
        self._condition = threading.Condition()
        self._pass_lock = threading.Lock()
        self._closed = False
        self._next_pass_at = math.inf
        """When the next scheduled pass starts; infinite without a schedule."""
        self._forced_kinds: frozenset[CompactionKind] | None = None
        """The kinds of compaction that the requested pass may run, until it has ended; None if no
        pass is requested."""
        self._suspended: dict[CompactionKind, set[str]] = {"major": set(), "minor": set()}  # why
        self._suspension_counts: dict[CompactionKind, int] = {"major": 0, "minor": 0}
        """How often each kind was suspended: a running compaction stops when it changes."""
        self._store_problem: str | None = None
        self._logged_findings: set[str] = set()
        self._thread: threading.Thread | None = None
        forks.register(self)

    # -- requests

    def start(self) -> None:
        """Start the schedule: the first pass runs after `gc_wait_time`. Idempotent."""
        with self._condition:
            self._check_open()
            if self.options.gc_wait_time and self._next_pass_at == math.inf:
                self._next_pass_at = self._clock() + self.options.gc_wait_time
                self._start_thread()
                self._condition.notify_all()

    def force(self, *, major: bool | None = None, minor: bool | None = None) -> bool:
        """Request a pass at once, whatever the intervals; return False, and do nothing, if one is
        requested already. `major` and `minor` say whether it may run that kind of compaction: with
        True it may, even if the kind is suspended; with False not; with None, the default, unless
        the kind is suspended."""
        wishes: list[tuple[CompactionKind, bool | None]] = [("major", major), ("minor", minor)]
        with self._condition:
            self._check_open()
            if self._forced_kinds is not None:
                return False
            self._forced_kinds = frozenset(
                kind
                for kind, wish in wishes
                if (not self._suspended[kind] if wish is None else wish)
            )
            self._start_thread()
            self._condition.notify_all()
        return True

    @property
    def is_forced(self) -> bool:
        """Whether a requested pass is running or about to run."""
        return self._forced_kinds is not None

    def suspend(self, kind: CompactionKind, reason: str = "asked for") -> None:
        """Stop a running compaction of a kind, and run none until every reason is withdrawn."""
        with self._condition:
            self._suspension_counts[kind] += 1
            if not self._suspended[kind]:
                LOG.info("bookie %s: %s compaction suspended", self.bookie.bookie_id, kind)
            self._suspended[kind].add(reason)
            self._condition.notify_all()

    def resume(self, kind: CompactionKind, reason: str = "asked for") -> None:
        """Withdraw a reason for a suspension."""
        with self._condition:
            if reason in self._suspended[kind]:
                self._suspended[kind].remove(reason)
                if not self._suspended[kind]:
                    LOG.info("bookie %s: %s compaction resumed", self.bookie.bookie_id, kind)

    def is_suspended(self, kind: CompactionKind) -> bool:
        """Return whether compactions of a kind are suspended."""
        return bool(self._suspended[kind])

    def set_disks_full(self, is_full: bool) -> None:
        """Suspend compactions while a disk is full, and resume them afterwards; with
        `is_force_gc_allow_when_no_space` force a pass instead."""
        if self.options.is_force_gc_allow_when_no_space:
            if is_full:
                self.force()
            return
        for kind in ("major", "minor"):
            if is_full:
                self.suspend(kind, "no space")
            else:
                self.resume(kind, "no space")

    def close(self) -> None:
        """End the schedule, stop a running compaction, and wait for the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _forked(self) -> None:
        self._closed = True
        self._condition, self._thread = threading.Condition(), None  # the parent may hold a lock

    def __repr__(self) -> str:
        return f"<BackgroundCollector of {self.bookie!r} every {self.options.gc_wait_time:g} s>"

    # -- its thread

    def _start_thread(self) -> None:
        """Start the thread at the first call. The caller holds the lock of `_condition`."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_passes, name="bkstore-garbage", daemon=True
            )
            self._thread.start()

    def _run_passes(self) -> None:
        """Run each pass that is requested or due, one at a time, until this is closed.

        A request by `force` during a scheduled pass is served by the next pass. During a requested
        pass `force` refuses, so there is no other request that the reset at its end could lose.
        """
        while self._wait_for_work():
            with self._condition:
                forced_kinds = self._forced_kinds
            try:
                self.run_pass(forced_kinds)
            except (BkstoreError, OSError):
                pass  # `run_pass` has logged it
            except Exception:
                LOG.exception("bookie %s: garbage collection", self.bookie.bookie_id)
            finally:
                with self._condition:
                    if forced_kinds is not None:
                        self._forced_kinds = None
                    if self._next_pass_at < math.inf:  # `start` was called
                        self._next_pass_at = self._clock() + self.options.gc_wait_time

    def _wait_for_work(self) -> bool:
        """Wait until a pass is due or requested; return False once this is closed."""
        with self._condition:
            while not self._closed and self._forced_kinds is None:
                remaining = self._next_pass_at - self._clock()
                if remaining <= 0:
                    break
                self._condition.wait(min(remaining, threading.TIMEOUT_MAX))
            return not self._closed

    # -- a pass

    def run_pass(self, forced_kinds: Collection[CompactionKind] | None = None) -> GarbageReport:
        """Run a pass now, after one that is running, and return its report. It compacts one of the
        kinds in `forced_kinds` whatever the intervals; None = by the schedule. Raises what
        `LedgerStorage.collect_garbage` raises, but not errors of the metadata store: after these no
        ledger is deleted."""
        with self._pass_lock:
            self._check_open()
            started, succeeded, self._store_problem = self._clock(), False, None
            problem: str | None = "the pass failed unexpectedly"  # by any other exception
            try:
                report = self._collect_garbage(forced_kinds)
                problem, succeeded = self._store_problem, True
            except (BkstoreError, OSError) as error:
                problem = str(error)
                if not self._closed:
                    LOG.warning("bookie %s: garbage collection: %s", self.bookie.bookie_id, error)
                raise
            finally:
                previous_problem, self.problem = self.problem, problem
                if (previous_problem is None) != (problem is None) and not self._closed:
                    self.on_problem_changed(problem)
                self.stats.passes.record(self._clock() - started, succeeded)
            self._report_pass(report)
            return report

    def _collect_garbage(self, forced_kinds: Collection[CompactionKind] | None) -> GarbageReport:
        """Run a garbage pass of the storage, and compact the location databases if due. With
        `forced_kinds` (None = by the schedule) only those kinds may be compacted, due or not."""
        kinds: tuple[CompactionKind, ...] = ("major", "minor")
        if forced_kinds is None:
            excluded = [kind for kind in kinds if self._suspended[kind]]
        else:
            excluded = [kind for kind in kinds if kind not in forced_kinds]
        is_forced = forced_kinds is not None
        kind = self._schedule.choose_due(self._clock(), force=is_forced, suspended=excluded)
        try:
            report = self.bookie.storage.run_garbage_pass(
                GarbagePass(
                    find_deleted=None if self._store is None else self._find_deleted,
                    compaction=None if kind is None else self._compaction_params(kind),
                    close_logs=True,
                    is_stopped=lambda: self._closed,
                )
            )
        finally:  # a compaction that failed is not repeated before the next interval either
            if kind is not None:
                self._schedule.record_compaction(kind, self._clock())
        if self._schedule.is_location_compaction_due(self._clock()):
            for index in self.location_indexes().values():
                self.compact_locations(index)
            self._schedule.record_location_compaction(self._clock())
        return report

    def _compaction_params(self, kind: CompactionKind) -> CompactionOptions:
        """Return the parameters of a compaction, which stops if its kind is suspended."""
        options, suspension_count = self.options, self._suspension_counts[kind]

        def is_cancelled() -> bool:
            return self._closed or self._suspension_counts[kind] != suspension_count

        full_log = self.bookie.storage.options.entry_log_size
        return CompactionOptions(
            threshold=options.threshold(kind),
            kind=kind,
            transactional=options.use_transactional_compaction,
            max_seconds=options.max_time(kind),
            max_outstanding=options.compaction_max_outstanding_requests,
            target_log_bytes=full_log if options.use_target_entry_log_size_for_gc else 0,
            throttle=CompactionThrottle(
                options.compaction_rate,
                by_bytes=options.is_throttle_by_bytes,
                clock=self._clock,
                wait=partial(self._wait_until, is_cancelled),
            ),
            clock=self._clock,
        )

    def _wait_until(self, is_over: Callable[[], bool], seconds: float) -> bool:
        """Wait at most `seconds` until `is_over` returns True; return what it returns then."""
        with self._condition:
            return self._condition.wait_for(is_over, seconds)

    def _find_deleted(
        self, bookie_ledgers: list[LedgerId], suspect: MarkSuspects
    ) -> Iterator[list[LedgerId]]:
        """Yield the bookie's ledgers that the metadata store has no more, in groups. `suspect` is
        called with the ledgers that may be yielded. If the store fails, stop and set
        `_store_problem`: a ledger is deleted only if that is certain."""
        assert self._store is not None
        cookie = self.bookie.directories.cookie
        find_deleted = DeletedLedgerFinder(
            self._store,
            instance_id=None if cookie is None else cookie.instance_id,
            rate=self.options.gc_metadata_op_rate_limit,
            pause=partial(self._wait_until, lambda: self._closed),
        )
        started, succeeded = self._clock(), False
        try:
            yield from find_deleted(bookie_ledgers, suspect)
            succeeded = True
        except (BkstoreError, OSError) as error:
            self._store_problem = f"no ledger can be judged: {error}"
            if not self._closed:
                LOG.warning("bookie %s: %s", self.bookie.bookie_id, self._store_problem)
        finally:
            self.stats.deletion_scans.record(self._clock() - started, succeeded)

    def _report_pass(self, report: GarbageReport) -> None:
        """Count and log the results of a pass; a finding that recurs is logged once."""
        self.stats.add(report, len(self.bookie.ledgers()))
        findings = [str(finding) for finding in report.findings]
        for finding in findings:
            if finding not in self._logged_findings:
                LOG.warning("bookie %s: garbage collection: %s", self.bookie.bookie_id, finding)
        self._logged_findings = set(findings)
        if report.deleted_ledgers or report.removed_logs:
            LOG.info(
                "bookie %s: %d ledgers deleted, %d entry logs removed, %d of them compacted",
                self.bookie.bookie_id,
                len(report.deleted_ledgers),
                len(report.removed_logs),
                len(report.compacted_logs),
            )

    # -- entry locations

    def location_indexes(self) -> dict[str, RocksIndex]:
        """Return the index of each `locations` database; empty unless the storage is db."""
        storage = self.bookie.storage
        if storage.storage != "db":
            return {}
        # there is a write path for each index directory, in the same order
        indexes = (cast("RocksIndex", path.index) for path in storage.write_paths)
        paths = (str(index_dir / "locations") for index_dir in self.bookie.directories.index)
        return dict(zip(paths, indexes))

    def compact_locations(self, index: RocksIndex) -> None:
        """Compact one `locations` database and count it."""
        index.compact_locations()
        self.location_compactions += 1
        self.locations_compacted_at = time.time()

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error("this garbage collector")
