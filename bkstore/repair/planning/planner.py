"""RepairPlanner: audits a cluster and plans the repair of every replica that is missing.

Findings are what the audit found about one ledger; a departed bookie is named by metadata, but not
registered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bkstore.availability import Availability
from bkstore.cluster.audit import Auditor, AuditReport, AvailabilitySource, Violation
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import ClientContext
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore
from bkstore.counts import format_count
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.repair.planning.finished_segments import FinishedSegments
from bkstore.repair.planning.ledger_planner import (
    ClusterBookies,
    LedgerFindings,
    LedgerPlanner,
    findings_by_ledger,
)
from bkstore.repair.planning.options import RepairOptions
from bkstore.repair.planning.replica_repairs import ReplicaRepair
from bkstore.repair.planning.verified_bookies import VerifiedBookies

_BATCH_LEDGERS = 1000


@dataclass
class RepairPlan:
    """The repairs that a cluster needs, sorted by ledger, the audit that they are from (None if a
    report from a file was used), and the bookies that were `registered` then (None = unknown).
    Without an audit, `unreadable` has the ledgers with damaged metadata, and the reasons."""

    repairs: list[ReplicaRepair] = field(default_factory=list)
    audit: AuditReport | None = None
    registered: frozenset[str] | None = None
    unreadable: dict[LedgerId, str] = field(default_factory=dict)

    @property
    def ledgers(self) -> list[LedgerId]:
        """The ledgers with a repair, in unsigned order."""
        return sorted({repair.ledger for repair in self.repairs})

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to repair, and every ledger was judged in full."""
        return not (self.repairs or self.describe_unjudged())

    @property
    def checked_nothing(self) -> bool:
        """Whether the audit judged no ledger, or no bookie answered it."""
        return self.audit is not None and self.audit.checked_nothing

    def describe_unjudged(self) -> list[str]:
        """Return a line for each reason for which something was not judged."""
        if self.audit is not None:
            return self.audit.describe_unjudged()
        return [
            f"ledger {ledger}: its metadata cannot be read: {reason}"
            for ledger, reason in sorted(self.unreadable.items())
        ]

    def summary(self) -> list[str]:
        """Return lines that describe the plan: what can be repaired, and what was not judged."""
        lines = [describe_repairs(self.repairs), *self.describe_unjudged()]
        if self.audit is not None:
            counts = self.audit.ledgers_by_outcome
            others = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)
            lines.append(f"{format_count(self.audit.ledgers, 'ledger')}: {others or 'none'}")
        return lines


def describe_repairs(repairs: Iterable[ReplicaRepair]) -> str:
    """Return how many replicas of entries have each status, in one line.

    >>> describe_repairs([])
    'Nothing to repair'
    """
    entries = Counter[str]()
    ledgers: dict[str, set[LedgerId]] = {}
    for repair in repairs:
        entries[repair.status] += len(repair.missing)
        ledgers.setdefault(repair.status, set()).add(repair.ledger)
    parts = [
        f"{status}: {format_count(entries[status], 'replica', grouped=True)} of entries in "
        f"{format_count(len(ledgers[status]), 'ledger', grouped=True)}"
        for status in ("repaired", "planned", "failed", "impossible", "skipped")
        if status in ledgers
    ]
    return "; ".join(parts) or "Nothing to repair"


class RepairPlanner:
    """Plans repairs of a cluster. `bookies` maps bookie ids to sources of entries, as of `Auditor`;
    `placement` judges ensembles and chooses bookies; `clock` and `wait` are the auditor's. With
    `options.verify` each copy is read by the clients `readers`, and counts as missing if its digest
    does not match.

    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.index.memtable import MemtableIndex
    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store, b1, b2 = MemoryStore(), MemtableIndex(), MemtableIndex()
    >>> version = store.create(LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])], state="CLOSED",
    ...     last_entry_id=2, length=9, digest_type="DUMMY", password=b""))
    >>> store.register_bookie("b1"); store.register_bookie("b2")
    >>> b1.put_many(7, [0, 1, 2], [1028, 1080, 1132]); b2.put_many(7, [0, 2], [1028, 1080])
    >>> plan = RepairPlanner(store, {"b1": b1, "b2": b2}).plan()
    >>> [(repair.action, repair.source, repair.target, repair.missing.entries().tolist())
    ...     for repair in plan.repairs]
    [('write', 'b1', 'b2', [1])]
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, AvailabilitySource],
        *,
        placement: PlacementPolicy | None = None,
        options: RepairOptions | None = None,
        readers: Mapping[str, BookieClient] | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.store = store
        self.bookies = bookies
        self.placement = placement or DefaultPlacement()
        self.options = options or RepairOptions()
        if self.options.verify and readers is None:
            raise InvalidArgument("verify needs readers: the clients that read copies")
        self._readers = readers
        self.is_spared: Callable[[str], bool] = lambda _: False
        """Whether a bookie that is not registered may come back soon, and is not replaced yet."""
        self._clock = clock
        self._wait = wait

    def plan(
        self,
        ledgers: Iterable[LedgerId] | None = None,
        *,
        reported: Iterable[Violation] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> RepairPlan:
        """Audit the ledgers (None: all of the store) and return the plan of their repairs.

        `reported` are violations that an earlier audit found: they count where a bookie cannot
        list its entries now. Raises what the store raises. Memory: as of an audit, plus the plan.
        """
        cluster = self.read_bookies()
        # what the audit sees: no marks, and of open ledgers only segments that cannot change
        view = FinishedSegments(self.store, cluster.registered, ledgers)
        bookies, damaged = self._sources()
        auditor = Auditor(
            view.as_store(),
            bookies,
            placement=self.placement,
            options=self.options.audit,
            clock=self._clock,
            wait=self._wait,
        )
        report = auditor.run(progress=progress)
        violations = findings_by_ledger(report.violations)
        earlier = findings_by_ledger(reported)
        # every ledger with a violation, a bookie that is not registered, or an unknown replica
        planned = violations.keys() | view.with_departed | report.unanswered.keys() | earlier.keys()
        findings = {
            ledger: _findings(report, violations.get(ledger, []), earlier.get(ledger, []))
            for ledger in planned
        }
        for ledger in planned & damaged.keys():
            findings[ledger].damaged = damaged[ledger]
        return RepairPlan(self._plan_ledgers(cluster, findings, {}), report, cluster.registered)

    def _sources(
        self,
    ) -> tuple[Mapping[str, AvailabilitySource], dict[LedgerId, dict[str, Availability]]]:
        """Return the bookies that an audit asks, and the dict to which it then adds their damaged
        copies (ledger -> bookie -> entries), if copies are verified."""
        if self._readers is None or not self.options.verify:
            return self.bookies, {}
        context = ClientContext(self.store, self._readers)
        verified = VerifiedBookies(self.bookies, context, self.options)
        return verified, verified.damaged

    def plan_reported(self, violations: Iterable[Violation]) -> RepairPlan:
        """Return the plan for the violations that an earlier audit found, without asking bookies.

        A row about a bookie alone stands for all ledgers that name it, if it is not registered now:
        then the metadata of all ledgers are read.
        """
        rows, cluster = list(violations), self.read_bookies()
        findings = {
            ledger: LedgerFindings(of_ledger)
            for ledger, of_ledger in findings_by_ledger(rows).items()
        }
        unreadable: dict[LedgerId, str] = {}
        if any(row.ledger is None for row in rows):
            view = FinishedSegments(self.store, cluster.registered)
            for ledger, versioned in view.read_many(self.store.ledgers()):
                if isinstance(versioned, CorruptionError):
                    unreadable[ledger] = str(versioned)
            for ledger in view.with_departed - findings.keys():
                findings[ledger] = LedgerFindings()
        repairs = self._plan_ledgers(cluster, findings, unreadable)
        return RepairPlan(repairs, registered=cluster.registered, unreadable=unreadable)

    def read_bookies(self) -> ClusterBookies:
        """Return which bookies are registered and writable now."""
        registered, writable = self.store.registered_bookies(), self.store.writable_bookies()
        takes_entries = frozenset(self.bookies) if writable is None else writable
        return ClusterBookies(registered, takes_entries, self.is_spared)

    def _plan_ledgers(
        self,
        cluster: ClusterBookies,
        findings: Mapping[LedgerId, LedgerFindings],
        unreadable: dict[LedgerId, str],
    ) -> list[ReplicaRepair]:
        """Return the repairs of ledgers by their metadata as they are now; ledgers with damaged
        metadata are added to `unreadable`."""
        planner = LedgerPlanner(cluster, self.placement, self.options)
        repairs: list[ReplicaRepair] = []
        ledgers = sorted(findings)
        for start in range(0, len(ledgers), _BATCH_LEDGERS):
            for ledger, versioned in self.store.read_many(ledgers[start : start + _BATCH_LEDGERS]):
                if isinstance(versioned, CorruptionError):
                    unreadable[ledger] = str(versioned)
                else:
                    repairs += planner.plan(versioned.metadata, findings[ledger])
        return repairs


def _findings(
    report: AuditReport, violations: list[Violation], earlier: list[Violation]
) -> LedgerFindings:
    """Return what is known of a ledger now. Of the `earlier` violations only those of bookies that
    cannot list their entries count: all others were judged anew."""
    unlisted = {bookie: absence.reason for bookie, absence in report.unlisted.items()}
    known_earlier = [violation for violation in earlier if violation.bookie in unlisted]
    return LedgerFindings(violations + known_earlier, unlisted)
