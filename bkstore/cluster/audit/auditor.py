"""Auditor: polices the durability contract of a cluster, and fixes nothing (BP-34).

A run goes over all ledgers in batches (`batch_check` has the rules), looks again, later, at those
of which a bookie gave no answer, and reports. Upstream's counterparts: `AuditorReplicasCheckTask`
and `AuditorPlacementPolicyCheckTask`, which lack several of BP-34's rules (`docs/parity.md`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any, Protocol, runtime_checkable

from bkstore.arguments import instance, number, optional
from bkstore.cluster.audit.batch_check import Checker
from bkstore.cluster.audit.batch_outcome import Outcome
from bkstore.cluster.audit.bookkeeper_compat import ledger_ranges
from bkstore.cluster.audit.options import AuditOptions, EntriesOfLedger
from bkstore.cluster.audit.pace import Pace
from bkstore.cluster.audit.report import AuditReport
from bkstore.cluster.audit.resume_file import RunFile
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore
from bkstore.counts import counted
from bkstore.durability import DURABILITY
from bkstore.errors import BkstoreError
from bkstore.files.disk_changes import StrPath
from bkstore.ids import LedgerId
from bkstore.metrics import AuditMetrics

Progress = Callable[[int, int], None]
"""Told of ledgers looked at so far, and how many there are."""

_CENTURY = 100 * 366 * 86400
"""The longest interval, in seconds: no system waits for as long as a float can say."""

_ONLY_HOW_FAST = ("concurrency", "rate")

_check_options = optional(instance(AuditOptions))
_log = logging.getLogger(__name__)


class Auditor:
    """Checks what bookies hold against what the metadata store says.

    `bookies` maps bookie ids to whoever answers for them: the clients of a cluster, the
    directories of `DirectoryBookie`, indexes. It is looked into as the run goes; a bookie that is
    not there gives no answer. `placement` judges ensembles, `clock` tells unix seconds, `wait`
    passes the time between looks, and between ledgers where there is a rate, by `monotonic`.

    Memory: a batch of ledgers with their sequence groups, and what was found. Threads: one run
    at a time; bookies are asked from `options.concurrency` threads.

    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.index.memtable import MemtableIndex
    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store, b1, b2 = MemoryStore(), MemtableIndex(), MemtableIndex()
    >>> version = store.create(LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])], state="CLOSED",
    ...     last_entry_id=2, length=9, digest_type="DUMMY", password=b""))
    >>> b1.put_many(7, [0, 1, 2], [1028, 1080, 1132]); b2.put_many(7, [0, 2], [1028, 1080])
    >>> report = Auditor(store, {"b1": b1, "b2": b2}).run()
    >>> [(each.category, each.bookie, each.missing.entries().tolist())
    ...     for each in report.violations]
    [('below_write_quorum', 'b2', [1])]
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, EntriesOfLedger],
        *,
        placement: PlacementPolicy | None = None,
        options: AuditOptions | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        metrics: AuditMetrics | None = None,
    ) -> None:
        """Take what to check against what, and who is told of the stats of each run."""
        self.store = store
        self.bookies = bookies
        self.placement = placement or DefaultPlacement()
        self.options = _check_options("options", options) or AuditOptions()
        self._clock = clock
        self._wait = wait
        self._monotonic = monotonic
        self._metrics = metrics
        self.skipped_runs = 0
        """Runs that were due and not begun (`NUM_SKIPPING_CHECK_TASK_TIMES`)."""

    def run(
        self,
        *,
        progress: Progress | None = None,
        resume: StrPath | None = None,
        what: str = "",
    ) -> AuditReport:
        """Check every ledger once and return what was found.

        With `resume`, a file, the run can be interrupted: the next call with the same file goes
        on behind the last batch that was judged; the file goes when the run ends. `what` says in
        words what is audited: a file that says otherwise is refused, as one of other options is,
        for its verdicts are not this cluster's. Any other file, a link, and a place in what is
        audited are refused too, and a file that another run has open (`DirectoryInUse`). Raises
        what the metadata store raises; damage of one ledger's metadata is in the report.
        """
        return self._run(progress or _silent, resume, self._wait, what)

    def _run(
        self,
        progress: Progress,
        resume: StrPath | None,
        wait: Callable[[float], object],
        what: str = "",
    ) -> AuditReport:
        if resume is None:
            return self._go(progress, None, wait)
        # Not `values`: a running bookie may go while they are listed.
        guarded: list[object] = [self.store, *map(self.bookies.get, self.bookies)]
        for each in guarded:
            if isinstance(each, _Guarded):
                each.refuse_output(Path(resume))
        run = {**self._parameters(), "what": what}
        with RunFile(resume, run, self._clock()) as kept:
            report = self._go(progress, kept, wait)
            kept.remove()
        return report

    def _go(
        self, progress: Progress, kept: RunFile | None, wait: Callable[[float], object]
    ) -> AuditReport:
        begun = self._clock()
        report = AuditReport(begun if kept is None else kept.started_at)
        ledgers = self.store.ledgers()
        report.ledgers = len(ledgers)
        outcomes = _Outcomes(report, kept, compat=self.options.compat is not None)
        with ExitStack() as stack:
            pool = self._pool(stack)
            checker = Checker(
                self.store, self.bookies, self.placement, self.options, self._clock, pool
            )
            pace = Pace(self.options.rate, self._monotonic, wait)
            self._first_round(checker, ledgers, outcomes, progress, pace)
            self._later_rounds(checker, outcomes, wait, pace)
        report.not_judged += self._untold(report, checker.looks.tells_marks)
        report.finish(self._clock())
        if self._metrics is not None:
            self._metrics.observe(report.stats)
        return report

    def _pool(self, stack: ExitStack) -> ThreadPoolExecutor | None:
        if self.options.concurrency == 1:
            return None
        pool = stack.enter_context(ThreadPoolExecutor(self.options.concurrency))
        stack.callback(pool.shutdown, cancel_futures=True)
        return pool

    def _first_round(
        self,
        checker: Checker,
        ledgers: list[LedgerId],
        outcomes: _Outcomes,
        progress: Progress,
        pace: Pace,
    ) -> None:
        """Go over all ledgers; without a later look, this one is final."""
        last = outcomes.judged_up_to
        left = ledgers if last is None else [each for each in ledgers if each > last]
        done, final = len(ledgers) - len(left), self.options.looks == 0
        progress(done, len(ledgers))
        for part in self._batches(left, pace):
            outcomes.take(f"ledger {part[-1].qualified_name}", checker.check(part, final=final))
            done += len(part)
            progress(done, len(ledgers))

    def _batches(self, ledgers: list[LedgerId], pace: Pace) -> Iterator[list[LedgerId]]:
        if self.options.compat is not None:
            parts = ledger_ranges(ledgers)
        else:
            size = self.options.batch
            parts = (ledgers[at : at + size] for at in range(0, len(ledgers), size))
        for part in parts:
            yield from pace.stretches(part)
            if pace.stopped:
                raise _Stopped

    def _later_rounds(
        self,
        checker: Checker,
        outcomes: _Outcomes,
        wait: Callable[[float], object],
        pace: Pace,
    ) -> None:
        """Look again at ledgers whose bookies gave no answer; the last look is final."""
        for look in range(outcomes.looks + 1, self.options.looks + 1):
            if not outcomes.again:
                return
            if wait(self.options.look_delay):
                raise _Stopped
            final, merged = look == self.options.looks, Outcome()
            for part in self._batches(outcomes.again, pace):
                merged.merge(checker.check(part, final=final))
            outcomes.take(f"look {look}", merged)

    def _untold(self, report: AuditReport, tells_marks: bool) -> list[str]:
        """Return what could not be judged because nobody said what would be needed for it."""
        missing = []
        if not tells_marks:
            missing.append("underreplicated marks, the store tells of none")
        elif self.options.grace_period is None:
            missing.append("overdue marks, no grace period is given")
        if report.undated:
            missing.append(
                counted(report.undated, "mark, it has no time", "marks, they have no time")
            )
        if self.store.registered_bookies() is None:
            missing.append("which bookies are registered, the store does not tell")
        if self.store.unavailable_bookies() is None:
            missing.append("whose unavailability is known, the store does not tell")
        return missing

    def _parameters(self) -> dict[str, Any]:
        given = {**asdict(self.options), "placement": type(self.placement).__name__}
        return {name: given[name] for name in sorted(given) if name not in _ONLY_HOW_FAST}

    # -- again and again

    def run_periodically(
        self,
        interval: float,
        stop: Event,
        on_report: Callable[[AuditReport], None],
        *,
        may_run: Callable[[], bool] = lambda: True,
        resume: StrPath | None = None,
    ) -> None:
        """Run every `interval` seconds (a century's at most) until `stop` is set, and keep the time
        of the last run.

        The first run comes at once if there was none, else when the interval since the last one
        is over (`checked_at` of the store). A run that is due while `may_run` says no (a bookie
        check is pending, replication is switched off) is left out and counted. A run that fails
        is logged, its time is not kept, and the next one comes an interval later. `stop` ends a
        run that is under way, too, without a report; with `resume` the next one goes on there.
        """
        number(0, _CENTURY, above=True)("interval", interval)
        while not stop.wait(self._until_due(interval)):
            if not may_run():
                self.skipped_runs += 1
                if self._metrics is not None:
                    self._metrics.skip()
            else:
                try:
                    report = self._run(_stopping(stop), resume, stop.wait)
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

    def _until_due(self, interval: float) -> float:
        last = self.store.checked_at()
        return 0.0 if last is None else max(0.0, last + interval - self._clock())


@runtime_checkable
class _Guarded(Protocol):
    """A store or bookie that has files of its own, where nothing else is written."""

    def refuse_output(self, target: Path) -> None: ...


class _Outcomes:
    """The outcomes of a run: those that a file kept, and new ones, brought into the report."""

    def __init__(self, report: AuditReport, kept: RunFile | None, *, compat: bool) -> None:
        self.report = report
        self.again: list[LedgerId] = []
        self.judged_up_to: LedgerId | None = None
        self.looks = 0
        self._kept = kept
        self._compat = compat
        for step, outcome in [] if kept is None else kept.steps:
            self._add(step, outcome)

    def take(self, step: str, outcome: Outcome) -> None:
        """Keep an outcome, then count it."""
        if self._kept is not None:
            self._kept.keep(step, outcome)
        self._add(step, outcome)

    def _add(self, step: str, outcome: Outcome) -> None:
        kind, _, which = step.partition(" ")
        if kind == "ledger":
            self.judged_up_to = LedgerId.parse(which)
            self.again += outcome.again
        else:
            self.looks = int(which)
            self.again = outcome.again
            self.report.looks = self.looks
        if self._compat:  # as built: the counters tell of the last range only
            for category in DURABILITY:
                self.report.counts[category] = 0
        self.report.add_counts(outcome)
        for violations in outcome.found.values():
            self.report.add(violations)


class _Stopped(Exception):
    """The run was stopped from outside; it is no error, and never leaves this module."""


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


def _stopping(stop: Event) -> Progress:
    """Return a progress function that ends the run when `stop` is set."""

    def progress(*_: int) -> None:
        if stop.is_set():
            raise _Stopped

    return progress
