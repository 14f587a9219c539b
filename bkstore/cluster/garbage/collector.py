"""BackgroundCollector: collects a bookie's garbage beside its work.

Source: `bookie/GarbageCollectorThread`.
"""

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
from bkstore.cluster.garbage.deleted_ledgers import DeletedLedgers
from bkstore.cluster.garbage.figures import GarbageFigures
from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.cluster.garbage.schedule import CompactionSchedule
from bkstore.cluster.store.api import MetadataStore, check_store
from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Closing
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.compaction_throttle import CompactionThrottle
from bkstore.storage.ledgers.garbage_pass import (
    Compaction,
    GarbagePass,
    GarbageReport,
    Kind,
    Suspect,
)

if TYPE_CHECKING:
    from bkstore.index.rocks import RocksIndex

LOG = logging.getLogger(__name__)

_check_options = optional(instance(GarbageOptions))


class BackgroundCollector(Closing):
    """Runs passes of garbage collection over a bookie, in a thread of its own.

    `store` says which ledgers are deleted (`deleted_ledgers`); without one none is. A pass in
    which the store gave no full answer deletes none either, says so in the log, in `problem` and
    in `figures`, and goes on with entry logs in which no ledger lives, and with compaction. An
    entry log that takes records is closed where it holds what the pass is to collect.

    `start` begins the schedule; `force` asks for a pass at once, `run_pass` runs one and waits.
    `suspend` ends a compaction that is going on, and lets none begin before `resume`. `close`
    gives up the compaction that is going on and does not wait for the rest: close it before the
    bookie. What was copied until then is moved for good, the rest of the log stays.

    Threads: all calls are safe; one pass at a time. Fork: closed in the child.
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
        self.figures = GarbageFigures()
        self.problem: str | None = None
        """Why the last pass failed, or judged no ledger; None if it did not, or none ran."""
        self.changed: Callable[[str | None], object] = bool
        """Called with the problem when it begins, with None when it ends."""
        self.location_compactions = 0
        self.locations_compacted_at = time.time()
        self._store = optional(check_store)("store", store)
        self._clock = clock
        self._schedule = CompactionSchedule(self.options, clock())
        self._changed = threading.Condition()
        self._passing = threading.Lock()
        self._closed = False
        self._next: float | None = None
        """When the next pass of the schedule begins; None without one."""
        self._forced: frozenset[Kind] | None = None
        """The kinds that the pass that was asked for may compact; None if none was."""
        self._suspended: dict[Kind, set[str]] = {"major": set(), "minor": set()}
        self._suspensions: dict[Kind, int] = {"major": 0, "minor": 0}
        """How often each kind was suspended: one that is going on then ends."""
        self._unjudged: str | None = None
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None
        forks.register(self)

    # -- what it is asked for

    def start(self) -> None:
        """Begin the schedule: the first pass comes after `gc_wait_time`. Idempotent."""
        with self._changed:
            self._check_open()
            if self.options.gc_wait_time and self._next is None:
                self._next = self._clock() + self.options.gc_wait_time
                self._begin()
                self._changed.notify_all()

    def force(self, *, major: bool | None = None, minor: bool | None = None) -> bool:
        """Ask for a pass at once; return False, with nothing done, while one is asked for already.

        It compacts whatever the intervals say, unless False says that a kind is not meant; True
        means a suspended kind too.
        """
        wishes: list[tuple[Kind, bool | None]] = [("major", major), ("minor", minor)]
        with self._changed:
            self._check_open()
            if self._forced is not None:
                return False
            self._forced = frozenset(
                kind
                for kind, wish in wishes
                if (not self._suspended[kind] if wish is None else wish)
            )
            self._begin()
            self._changed.notify_all()
        return True

    @property
    def is_forced(self) -> bool:
        """Whether a pass that was asked for runs, or is about to."""
        return self._forced is not None

    def suspend(self, kind: Kind, reason: str = "asked for") -> None:
        """Run no compaction of a kind before each reason is taken back; end one that runs."""
        with self._changed:
            self._suspensions[kind] += 1
            if not self._suspended[kind]:
                LOG.info("bookie %s: %s compaction suspended", self.bookie.bookie_id, kind)
            self._suspended[kind].add(reason)
            self._changed.notify_all()

    def resume(self, kind: Kind, reason: str = "asked for") -> None:
        """Take a reason for a suspension back."""
        with self._changed:
            if reason in self._suspended[kind]:
                self._suspended[kind].remove(reason)
                if not self._suspended[kind]:
                    LOG.info("bookie %s: %s compaction resumed", self.bookie.bookie_id, kind)

    def is_suspended(self, kind: Kind) -> bool:
        """Return whether compactions of a kind are suspended."""
        return bool(self._suspended[kind])

    def note_space(self, is_full: bool) -> None:
        """Take note of whether the disks are full: nothing is compacted then, or a pass forced.

        As `is_force_gc_allow_when_no_space` says.
        """
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
        """End the schedule, give up the compaction that is going on, and wait for the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _forked(self) -> None:
        self._closed = True
        self._changed, self._thread = threading.Condition(), None  # a lock may be the parent's

    def __repr__(self) -> str:
        """Return whose garbage it collects, and how often."""
        return f"<BackgroundCollector of {self.bookie!r} every {self.options.gc_wait_time:g} s>"

    # -- its thread

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="bkstore-garbage", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wait_for_work():
            forced = self._forced
            try:
                self.run_pass(forced)
            except (BkstoreError, OSError):
                pass  # said by the pass
            except Exception:
                LOG.exception("bookie %s: garbage collection", self.bookie.bookie_id)
            finally:
                with self._changed:
                    if forced is not None:
                        self._forced = None
                    if self._next is not None:
                        self._next = self._clock() + self.options.gc_wait_time

    def _wait_for_work(self) -> bool:
        """Wait until a pass is due or asked for; return False once it is closed."""
        with self._changed:
            while not self._closed and self._forced is None:
                left = math.inf if self._next is None else self._next - self._clock()
                if left <= 0:
                    break
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            return not self._closed

    # -- a pass

    def run_pass(self, forced: Collection[Kind] | None = None) -> GarbageReport:
        """Run a pass now and return what was done; one that runs is waited for first.

        `forced` are the kinds of which one is compacted whatever the intervals say; None = by the
        schedule. Raises as `LedgerStorage.collect_garbage`, but for what the store raises.
        """
        with self._passing:
            self._check_open()
            begin, done, self._unjudged = self._clock(), False, None
            problem: str | None = "the pass broke down"
            try:
                report = self._collect(forced)
                problem, done = self._unjudged, True
            except (BkstoreError, OSError) as error:
                problem = str(error)
                if not self._closed:
                    LOG.warning("bookie %s: garbage collection: %s", self.bookie.bookie_id, error)
                raise
            finally:
                before, self.problem = self.problem, problem
                if (before is None) != (problem is None) and not self._closed:
                    self.changed(problem)
                self.figures.passes.note(self._clock() - begin, done)
            self._tell(report)
            return report

    def _collect(self, forced: Collection[Kind] | None) -> GarbageReport:
        every: tuple[Kind, ...] = ("major", "minor")
        if forced is None:
            suspended = [kind for kind in every if self._suspended[kind]]
        else:
            suspended = [kind for kind in every if kind not in forced]
        kind = self._schedule.due(self._clock(), force=forced is not None, suspended=suspended)
        try:
            report = self.bookie.storage.run_garbage_pass(
                GarbagePass(
                    find_deleted=None if self._store is None else self._find_deleted,
                    compaction=None if kind is None else self._compaction(kind),
                    close_logs=True,
                    is_stopped=lambda: self._closed,
                )
            )
        finally:
            if kind is not None:
                self._schedule.compacted(kind, self._clock())
        if self._schedule.locations_due(self._clock()):
            for index in self.location_indexes().values():
                self.compact_locations(index)
            self._schedule.locations_compacted(self._clock())
        return report

    def _compaction(self, kind: Kind) -> Compaction:
        options, before = self.options, self._suspensions[kind]

        def is_given_up() -> bool:
            return self._closed or self._suspensions[kind] != before

        storage = self.bookie.storage.options
        return Compaction(
            threshold=options.threshold(kind),
            kind=kind,
            transactional=options.use_transactional_compaction,
            max_time=options.max_time(kind),
            max_outstanding=options.compaction_max_outstanding_requests,
            full_log=storage.entry_log_size if options.use_target_entry_log_size_for_gc else 0,
            throttle=CompactionThrottle(
                options.compaction_rate,
                by_bytes=options.is_throttle_by_bytes,
                clock=self._clock,
                wait=partial(self._wait, is_given_up),
            ),
            clock=self._clock,
        )

    def _wait(self, ends: Callable[[], bool], seconds: float) -> bool:
        """Wait so long, or until `ends` is true; return whether it is."""
        with self._changed:
            return self._changed.wait_for(ends, seconds)

    def _find_deleted(self, here: list[LedgerId], suspect: Suspect) -> Iterator[list[LedgerId]]:
        """Yield the deleted ledgers; no further ones where the store gave no full answer."""
        assert self._store is not None
        cookie = self.bookie.place.cookie
        judge = DeletedLedgers(
            self._store,
            instance_id=None if cookie is None else cookie.instance_id,
            rate=self.options.gc_metadata_op_rate_limit,
            pause=partial(self._wait, lambda: self._closed),
        )
        begin, judged = self._clock(), False
        try:
            yield from judge(here, suspect)
            judged = True
        except (BkstoreError, OSError) as error:
            self._unjudged = f"no ledger is judged: {error}"
            if not self._closed:
                LOG.warning("bookie %s: %s", self.bookie.bookie_id, self._unjudged)
        finally:
            self.figures.judgements.note(self._clock() - begin, judged)

    def _tell(self, report: GarbageReport) -> None:
        """Count and log what a pass did; a finding is logged once for as long as it stays."""
        self.figures.add(report, len(self.bookie.ledgers()))
        findings = [str(finding) for finding in report.findings]
        for finding in findings:
            if finding not in self._told:
                LOG.warning("bookie %s: garbage collection: %s", self.bookie.bookie_id, finding)
        self._told = set(findings)
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
        """Return the index of each `locations` database; empty where storage is not db."""
        storage = self.bookie.storage
        if storage.storage != "db":
            return {}
        indexes = (cast("RocksIndex", path.index) for path in storage.paths)
        places = self.bookie.place.index
        return {str(place / "locations"): index for place, index in zip(places, indexes)}

    def compact_locations(self, index: RocksIndex) -> None:
        """Compact one of the databases."""
        index.compact_locations()
        self.location_compactions += 1
        self.locations_compacted_at = time.time()

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed("this garbage collector")
