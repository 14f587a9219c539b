"""Auditor: checks the durability contract of a cluster, and repairs nothing (BP-34).

A run checks all ledgers in batches (`batch_check` has the rules), later rechecks those of which a
bookie gave no answer, and returns a report. A mark is the metadata store's record that a ledger is
underreplicated. In BookKeeper: `AuditorReplicasCheckTask` and `AuditorPlacementPolicyCheckTask`,
which lack several of BP-34's rules (`docs/parity.md`).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any, Protocol, runtime_checkable

from bkstore.arguments import instance, number, optional
from bkstore.cluster.audit.batch_check import BatchChecker
from bkstore.cluster.audit.batch_outcome import BatchOutcome
from bkstore.cluster.audit.bookkeeper_compat import group_by_leaf
from bkstore.cluster.audit.options import AuditOptions, AvailabilitySource
from bkstore.cluster.audit.report import AuditReport
from bkstore.cluster.audit.resume_file import ResumeFile
from bkstore.cluster.audit.throttle import Throttle
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.owners import read_owners
from bkstore.counts import format_count
from bkstore.durability.violations import DURABILITY_CATEGORIES
from bkstore.errors import BkstoreError
from bkstore.files.disk_changes import StrPath
from bkstore.ids import LedgerId
from bkstore.metrics import AuditMetrics

Progress = Callable[[int, int], None]
"""Called with the number of ledgers checked so far, and of all ledgers."""

_MAX_INTERVAL_SECONDS = 100 * 366 * 86400
"""A century: the system cannot wait for arbitrarily long."""

_SPEED_OPTIONS = ("concurrency", "rate")
"""Options that do not change the verdicts, so that a run may be resumed with others."""

_check_options = optional(instance(AuditOptions))
_NOT_LISTED = "the metadata do not list them (a JSON file can, as"
_log = logging.getLogger(__name__)


class Auditor:
    """Checks that bookies hold the entries that the metadata store assigns to them.

    `bookies` maps bookie ids to objects that list their entries: clients of a running cluster,
    `DirectoryBookie`s, indexes. It is read during the run; a bookie that it lacks counts as
    unreachable. `placement` judges ensembles, `clock` returns unix seconds, `wait` sleeps between
    rounds, and between ledgers to keep the rate (by `monotonic`). `metrics` get each run's stats.
    With `ledgers`, only these are checked; those that are not in the store are ignored.
    Memory: a batch of ledgers with their sequence groups, and the findings. Threads: one run at a
    time, with `options.concurrency` threads that query bookies.

    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.index.memtable import MemtableIndex
    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store, b1, b2 = MemoryStore(), MemtableIndex(), MemtableIndex()
    >>> version = store.create(LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])], state="CLOSED",
    ...     last_entry_id=2, length=9, digest_type="DUMMY", password=b""))
    >>> b1.put_many(7, [0, 1, 2], [1028, 1080, 1132]); b2.put_many(7, [0, 2], [1028, 1080])
    >>> report = Auditor(store, {"b1": b1, "b2": b2}).run()
    >>> [(violation.category, violation.bookie, violation.missing.entries().tolist())
    ...     for violation in report.violations]
    [('below_write_quorum', 'b2', [1])]
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, AvailabilitySource],
        *,
        placement: PlacementPolicy | None = None,
        options: AuditOptions | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        metrics: AuditMetrics | None = None,
        ledgers: Iterable[LedgerId] | None = None,
    ) -> None:
        self.store = store
        self.bookies = bookies
        self.placement = placement or DefaultPlacement()
        self.options = _check_options("options", options) or AuditOptions()
        self._clock = clock
        self._wait = wait
        self._monotonic = monotonic
        self._metrics = metrics
        self._chosen = None if ledgers is None else frozenset(ledgers)
        self.skipped_runs = 0
        """Runs that were due and were skipped (`NUM_SKIPPING_CHECK_TASK_TIMES`)."""

    def run(
        self,
        *,
        progress: Progress | None = None,
        resume: StrPath | None = None,
        description: str = "",
    ) -> AuditReport:
        """Check every ledger, or the chosen ones, once and return the report.

        With `resume`, a path, the run can be interrupted: the next call with the same file
        continues after the last checked batch; the file is removed when the run ends. `description`
        describes the audited cluster: a file with another description or other options is refused,
        because its verdicts are not this cluster's. So are any other file, a link, a path inside
        the audited directories, and a file that another run has open (`DirectoryInUse`). Raises
        what the metadata store raises; damaged metadata of a ledger are in the report.
        """
        return self._run_or_resume(progress or (lambda *_: None), resume, self._wait, description)

    def _run_or_resume(
        self,
        progress: Progress,
        resume: StrPath | None,
        wait: Callable[[float], object],
        description: str = "",
    ) -> AuditReport:
        """Check every ledger and return the report; `wait` sleeps, and returns true to stop the
        run. With `resume`, keep the outcome of each batch in that file while the run lasts."""
        if resume is None:
            return self._run_audit(progress, None, wait)
        # Not `values`: a running bookie may be unregistered while they are listed.
        inputs: list[object] = [self.store, *map(self.bookies.get, self.bookies)]
        for source in inputs:
            if isinstance(source, _RefusesOutput):
                source.refuse_output(Path(resume))
        parameters = {**self._parameters_to_match(), "what": description}
        with ResumeFile(resume, parameters, self._clock()) as resume_file:
            report = self._run_audit(progress, resume_file, wait)
            resume_file.remove()
        return report

    def _run_audit(
        self, progress: Progress, resume_file: ResumeFile | None, wait: Callable[[float], object]
    ) -> AuditReport:
        """Check every ledger, then again those of which a bookie gave no answer; return the
        report."""
        started_at = self._clock()
        report = AuditReport(started_at if resume_file is None else resume_file.started_at)
        ledgers = self.store.ledgers()
        if self._chosen is not None:
            ledgers = [ledger_id for ledger_id in ledgers if ledger_id in self._chosen]
        report.ledgers, report.is_partial = len(ledgers), self._chosen is not None
        outcomes = _Outcomes(report, resume_file, compat=self.options.compat is not None)
        with ExitStack() as stack:
            pool = self._open_pool(stack)
            checker = BatchChecker(
                self.store, self.bookies, self.placement, self.options, self._clock, pool
            )
            throttle = Throttle(self.options.rate, self._monotonic, wait)
            self._first_round(checker, ledgers, outcomes, progress, throttle)
            self._later_rounds(checker, outcomes, wait, throttle)
        report.unchecked_rules += self._rules_not_checked(report, checker.snapshots.has_marks)
        report.finish(self._clock())
        report.owners = read_owners(self.store, report.reported_ledgers())
        if self._metrics is not None:
            self._metrics.observe(report.stats)
        return report

    def _open_pool(self, stack: ExitStack) -> ThreadPoolExecutor | None:
        """Return the threads that query bookies until `stack` ends, None for the calling thread."""
        if self.options.concurrency == 1:
            return None
        pool = stack.enter_context(ThreadPoolExecutor(self.options.concurrency))
        # Runs before the pool's own exit, which would wait for all queued tasks after an error.
        stack.callback(pool.shutdown, cancel_futures=True)
        if isinstance(self.bookies, _Stoppable):  # runs first, so that the threads end soon
            stack.callback(self.bookies.stop)
        return pool

    def _first_round(
        self,
        checker: BatchChecker,
        ledgers: list[LedgerId],
        outcomes: _Outcomes,
        progress: Progress,
        throttle: Throttle,
    ) -> None:
        """Check all ledgers in order, after the last one that the resume file has; there, each
        batch is the step ``ledger ID`` of its last ledger. The verdicts are final if there are no
        later rounds."""
        last_judged = outcomes.last_judged
        done = 0 if last_judged is None else bisect_right(ledgers, last_judged)
        final = self.options.rechecks == 0
        progress(done, len(ledgers))
        for batch in self._make_batches(ledgers[done:], throttle):
            outcomes.record(f"ledger {batch[-1].qualified_name}", checker.check(batch, final=final))
            done += len(batch)
            progress(done, len(ledgers))

    def _make_batches(
        self, ledgers: list[LedgerId], throttle: Throttle
    ) -> Iterator[list[LedgerId]]:
        """Yield ledgers in batches, each when the rate allows it; raises `_Stopped` if the caller
        wants to stop meanwhile."""
        if self.options.compat is not None:  # BookKeeper resets its counters for each leaf folder
            batches = group_by_leaf(ledgers)
        else:
            size = self.options.batch
            batches = (ledgers[start : start + size] for start in range(0, len(ledgers), size))
        for batch in batches:
            yield from throttle.groups(batch)
            if throttle.stopped:
                raise _Stopped

    def _later_rounds(
        self,
        checker: BatchChecker,
        outcomes: _Outcomes,
        wait: Callable[[float], object],
        throttle: Throttle,
    ) -> None:
        """Recheck ledgers whose bookies gave no answer, after a delay each time. The last round is
        final: it gives a verdict even without an answer. In the resume file, recheck N is the step
        ``look N``."""
        for recheck in range(outcomes.rechecks + 1, self.options.rechecks + 1):
            if not outcomes.to_recheck:
                return
            if wait(self.options.recheck_delay):  # true if the caller wants to stop
                raise _Stopped
            # A round is one step: an interrupted one is repeated as a whole.
            final, merged = recheck == self.options.rechecks, BatchOutcome()
            for batch in self._make_batches(outcomes.to_recheck, throttle):
                merged.merge(checker.check(batch, final=final))
            outcomes.record(f"look {recheck}", merged)

    def _rules_not_checked(self, report: AuditReport, has_marks: bool) -> list[str]:
        """Return why rules were not checked: lists absent from the metadata, options not given.
        `has_marks`: the store lists its marks, even if there are none."""
        rules = []
        if not has_marks:
            rules.append(f'marks: {_NOT_LISTED} "underreplicated")')
        elif self.options.grace_period is None:
            rules.append("overdue marks: no grace period was given (--grace-period SECONDS)")
        if report.undated:
            rules += [format_count(report.undated, "mark without a time", "marks without a time")]
        if self.store.registered_bookies() is None:
            rules.append(f'registered bookies: {_NOT_LISTED} "registered_bookies")')
        if self.store.unavailable_bookies() is None:
            rules.append(f'unavailable bookies: {_NOT_LISTED} "unavailable_bookies")')
        return rules

    def _parameters_to_match(self) -> dict[str, Any]:
        """Return the options that a resumed run must share with the interrupted one."""
        parameters = {**asdict(self.options), "placement": type(self.placement).__name__}
        if self._chosen is not None:
            parameters["chosen"] = True
        return {name: parameters[name] for name in sorted(parameters) if name not in _SPEED_OPTIONS}

    # -- periodic runs

    def run_periodically(
        self,
        interval: float,
        stop: Event,
        on_report: Callable[[AuditReport], None],
        *,
        may_run: Callable[[], bool] = lambda: True,
        resume: StrPath | None = None,
    ) -> None:
        """Run every `interval` seconds (at most a century) until `stop` is set; store the time of
        each run in the metadata store.

        The first run starts at once if there was none before, otherwise when the interval since the
        last one (`checked_at` of the store) is over. A run that is due while `may_run` returns
        false (a bookie check is pending, replication is disabled) is skipped and counted. A failed
        run is logged, its time is not stored, and the next one starts an interval later. `stop`
        also ends the current run, without a report; with `resume` the next one continues there.
        """
        number(0, _MAX_INTERVAL_SECONDS, above=True)("interval", interval)
        while not stop.wait(self._seconds_until_due(interval)):
            if not may_run():
                self.skipped_runs += 1
                if self._metrics is not None:
                    self._metrics.count_skipped()
            else:
                try:
                    report = self._run_or_resume(_progress_until(stop), resume, stop.wait)
                except _Stopped:
                    return
                except BkstoreError:
                    _log.exception("the audit failed; the next one is in %s s", interval)
                else:
                    self.store.set_checked_at(self._clock())
                    on_report(report)
                    continue
            if stop.wait(interval):
                return

    def _seconds_until_due(self, interval: float) -> float:
        last = self.store.checked_at()
        return 0.0 if last is None else max(0.0, last + interval - self._clock())


@runtime_checkable
class _RefusesOutput(Protocol):
    def refuse_output(self, target: Path) -> None: ...


@runtime_checkable
class _Stoppable(Protocol):
    def stop(self) -> None: ...


class _Outcomes:
    """Adds outcomes to the report: first those of the resume file, then new ones."""

    def __init__(self, report: AuditReport, resume_file: ResumeFile | None, compat: bool) -> None:
        """Begin with the outcomes in the resume file, if there is one."""
        self.report = report
        self.to_recheck: list[LedgerId] = []
        self.last_judged: LedgerId | None = None  # in the first round
        self.rechecks = 0  # rounds that are complete
        self._resume_file = resume_file
        self._compat = compat
        for step, outcome in [] if resume_file is None else resume_file.steps:
            self._add_outcome(step, outcome)

    def record(self, step: str, outcome: BatchOutcome) -> None:
        """Write an outcome to the resume file, then add it to the report."""
        if self._resume_file is not None:
            self._resume_file.append_step(step, outcome)
        self._add_outcome(step, outcome)

    def _add_outcome(self, step: str, outcome: BatchOutcome) -> None:
        """Add the outcome of a step to the report: "ledger ID" is a batch of the first round that
        ends with this ledger, "look N" the whole recheck N."""
        step_kind, _, position = step.partition(" ")
        if step_kind == "ledger":
            self.last_judged = LedgerId.parse(position)
            self.to_recheck += outcome.to_recheck
        else:
            self.rechecks = self.report.rechecks = int(position)
            self.to_recheck = outcome.to_recheck
        if self._compat:  # BookKeeper resets its counters before each leaf folder
            for category in DURABILITY_CATEGORIES:
                self.report.counts[category] = 0
        self.report.add_counts(outcome)
        for violations in outcome.violations.values():
            self.report.add(violations)


class _Stopped(Exception):
    """The run was stopped by its caller; never raised out of this module."""


def _progress_until(stop: Event) -> Progress:
    """Return a progress function that ends the run when `stop` is set."""

    def progress(*_: int) -> None:  # the counts of ledgers are not needed
        if stop.is_set():
            raise _Stopped

    return progress
