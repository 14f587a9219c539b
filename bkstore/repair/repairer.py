"""Repairer: plans the repair of a cluster, and carries it out, several ledgers at a time.

The rows of a plan (`ReplicaRepair`) are the entries of a segment that one bookie lacks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from bkstore.cluster.audit import AvailabilitySource, Violation
from bkstore.cluster.client.ledger_access import ClientContext
from bkstore.ids import LedgerId
from bkstore.repair.entry_copier import RepairStopped
from bkstore.repair.ledger_locks import LedgerLocks
from bkstore.repair.ledger_repair import LedgerRepairer
from bkstore.repair.planning.byte_rate import ByteRate
from bkstore.repair.planning.ledger_planner import findings_by_ledger
from bkstore.repair.planning.options import RepairOptions
from bkstore.repair.planning.planner import RepairPlan, RepairPlanner
from bkstore.repair.planning.replica_repairs import ReplicaRepair

RepairProgress = Callable[[int, int, int], None]
"""Called with the replicas of entries that were copied, those that the plan has, and the bytes."""

_LedgerResult = tuple[list[ReplicaRepair], bool]
"""The rows of a ledger with their results, and whether its mark was removed."""

_CONCURRENCY = 8
"""Bookies that are asked at a time before a ledger is repaired."""


@dataclass
class RepairReport(RepairPlan):
    """The result of a repair: the rows of the plan, each with what became of it.

    `copied_entries` and `copied_bytes` count what bookies have received, `removed_marks` the
    ledgers whose underreplicated mark was removed. `stopped` is set if the repair did not get to
    all ledgers: the rows of the others are "skipped".
    """

    copied_entries: int = 0
    copied_bytes: int = 0
    removed_marks: int = 0
    stopped: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether every repair succeeded, and every ledger was judged in full."""
        unrepaired = any(repair.status != "repaired" for repair in self.repairs)
        return not (unrepaired or self.stopped or self.describe_unjudged())


class Repairer:
    """Repairs a cluster. `context` is a client's, with its store, bookies and placement policy.
    `sources` list the entries of bookies, by default the client's bookies.

    >>> import tempfile
    >>> from bkstore.cluster import Cluster
    >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top, bookies=3) as cluster:
    ...     with cluster.create_ledger(3, 2, 2) as ledger:
    ...         _ = ledger.append_many([b"one", b"two", b"three"])
    ...     lost = cluster.lose("bookie-1", ledger.ledger, [0, 1, 2])
    ...     report = Repairer(cluster.context).run()
    ...     (lost == cluster.bookie("bookie-1").entries(ledger.ledger)).all(), report.is_clean
    (np.True_, True)
    """

    def __init__(
        self,
        context: ClientContext,
        sources: Mapping[str, AvailabilitySource] | None = None,
        *,
        options: RepairOptions | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.context = context
        self.options = options or RepairOptions()
        self.planner = RepairPlanner(
            context.store,
            context.bookies if sources is None else sources,
            placement=context.placement,
            options=self.options,
            readers=context.bookies,
            clock=clock,
            wait=wait,
        )
        self.report = RepairReport()
        """The report of the last run, also of one that was interrupted or failed."""
        self._locks = LedgerLocks(context.store)
        self._clock, self._wait = clock, wait

    def run(
        self,
        plan: RepairPlan | None = None,
        *,
        reported: Iterable[Violation] = (),
        remove_marks: bool = True,
        stop: threading.Event | None = None,
        progress: RepairProgress | None = None,
    ) -> RepairReport:
        """Repair the ledgers of `plan` (None: plan first), and return what became of each row.

        Each ledger is locked and planned again before it is repaired. `reported` are the violations
        of an earlier audit, for bookies that cannot list entries. `stop` ends the repair between
        two batches; an interrupt does too, and is raised again. Marks of closed ledgers that lack
        nothing are removed, with `remove_marks` also of ledgers that the plan does not have.

        Raises `IllegalOperation` if replication is disabled or another repair of the cluster runs,
        and what the metadata store raises.
        Memory: as of a plan, and some MiB for each ledger that is repaired.
        """
        self.report = RepairReport()
        self._locks.check_enabled()
        with self._locks.only_repair():
            plan = plan or self.planner.plan()
            planned = {repair.ledger for repair in plan.repairs}
            marked = self.context.store.marked() if remove_marks else None
            self.report.audit, self.report.unreadable = plan.audit, plan.unreadable
            run = _RepairRun(self, plan, list(reported), stop or threading.Event(), progress)
            run.run(sorted(planned | (marked or frozenset())))
        return self.report

    def repairer_of_ledgers(
        self, stop: threading.Event, on_copied: Callable[[int, int], None]
    ) -> LedgerRepairer:
        """Return the repairer of single ledgers. It audits each again, but at once: without
        rechecks of bookies that do not answer, and without a limit of the rate."""
        audit = replace(self.options.audit, rechecks=0, rate=None, concurrency=_CONCURRENCY)
        planner = RepairPlanner(
            self.context.store,
            self.planner.bookies,
            placement=self.context.placement,
            options=replace(self.options, audit=audit),
            readers=self.context.bookies,
            clock=self._clock,
            wait=self._wait,
        )
        planner.is_spared = self.planner.is_spared
        rate = ByteRate(self.options.bytes_per_second, wait=stop.wait)
        return LedgerRepairer(self.context, planner, self._locks, rate, stop, on_copied)


class _RepairRun:
    """One run: ledgers are handed to threads; their rows are collected in the calling thread."""

    def __init__(
        self,
        repairer: Repairer,
        plan: RepairPlan,
        reported: list[Violation],
        stop: threading.Event,
        progress: RepairProgress | None,
    ) -> None:
        self._report = repairer.report
        self._parallel = repairer.options.parallel
        self._reported = findings_by_ledger(reported)
        self._stop = stop
        self._progress = progress
        self._planned: dict[LedgerId, list[ReplicaRepair]] = {}
        for repair in plan.repairs:
            self._planned.setdefault(repair.ledger, []).append(repair)
        self._total_entries = sum(len(repair.missing) for repair in plan.repairs)
        self._added: set[LedgerId] = set()  # ledgers whose results are in the report
        self._lock = threading.Lock()
        self._ledger_repairer = repairer.repairer_of_ledgers(stop, self._count_copied)

    def run(self, ledgers: Sequence[LedgerId]) -> None:
        """Repair ledgers and complete the report. After an error or interrupt all threads stop, and
        the results that they have by then are in the report before it is raised again."""
        with ThreadPoolExecutor(self._parallel, "bkstore-repair") as pool:
            futures = {pool.submit(self._repair, ledger): ledger for ledger in ledgers}
            try:
                for future in as_completed(futures):
                    self._add_result(futures[future], future)
            except BaseException:
                self._stop.set()  # the others end soon, and their results count
                for future in as_completed(futures):
                    if future.exception() is None or isinstance(future.exception(), RepairStopped):
                        self._add_result(futures[future], future)
                raise
            finally:
                self._report.repairs.sort(key=lambda repair: repair.sort_key)

    def _add_result(self, ledger: LedgerId, future: Future[_LedgerResult]) -> None:
        """Add the rows of a ledger to the report, once; raises the error that ended its repair."""
        if ledger in self._added:
            return
        try:
            rows, mark_removed = future.result()
        except RepairStopped:
            self._report.stopped = True
            reason = "the repair was stopped before this was verified"
            planned = self._planned.get(ledger, [])
            rows = [row._replace(status="skipped", detail=reason) for row in planned]
            mark_removed = False
        self._added.add(ledger)
        self._report.repairs += rows
        self._report.removed_marks += mark_removed

    def _repair(self, ledger: LedgerId) -> _LedgerResult:
        """Repair one ledger, in a thread."""
        if self._stop.is_set():
            raise RepairStopped
        planned = self._planned.get(ledger, [])
        return self._ledger_repairer.repair(ledger, planned, self._reported.get(ledger, ()))

    def _count_copied(self, entries: int, byte_count: int) -> None:
        with self._lock:
            self._report.copied_entries += entries
            self._report.copied_bytes += byte_count
            if self._progress is not None:
                total = max(self._total_entries, self._report.copied_entries)
                self._progress(self._report.copied_entries, total, self._report.copied_bytes)
