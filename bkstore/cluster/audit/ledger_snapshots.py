"""The two reads of a batch's marks and metadata: before the check, and again before a verdict.

A mark is the store's record that a ledger is underreplicated. Marks are listed once a run; each is
read with its ledger's batch, and ignored if it is gone by then. The second read, of ledgers with a
problem only, reads their marks, and so detects marks that were set later. Source: BP-34, "High
Level Logic".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bkstore.cluster.audit.batch_outcome import BatchOutcome
from bkstore.cluster.audit.options import AuditOptions
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.durability.violations import MissingReplicas, Violation
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.model import SegmentRange

_UnknownEntries = dict[str, tuple[str, list[SegmentRange]]]
"""By bookie: why its entries are unknown, and in which segments."""


@dataclass(slots=True)
class CheckedLedger:
    """A closed ledger that is being checked: its metadata as first read, and its problems so far.

    `unanswered` are bookies that did not answer (those in `absent` are not in the audit's mapping),
    `unlisted` those that respond, but cannot list entries. `has_expected_entries`: it is not empty.
    """

    versioned: Versioned
    segments: list[SegmentRange]
    has_expected_entries: bool = False
    is_marked: bool = False
    placement_violations: list[Violation] = field(default_factory=list)
    missing_replicas: list[MissingReplicas] = field(default_factory=list)
    unanswered: _UnknownEntries = field(default_factory=dict)
    unlisted: _UnknownEntries = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as first read."""
        return self.versioned.metadata

    @property
    def ledger(self) -> LedgerId:
        """The ledger's id."""
        return self.versioned.metadata.ledger

    @property
    def has_problem(self) -> bool:
        """Whether there is a problem, so that the ledger is read again before a verdict."""
        unknown = self.unanswered or self.unlisted
        return bool(self.placement_violations or self.missing_replicas or unknown)


class LedgerSnapshots:
    """Reads a run's marks (if the store `has_marks`) and metadata, one batch at a time."""

    def __init__(
        self, store: MetadataStore, options: AuditOptions, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._grace_period = options.grace_period
        self._is_compat = options.compat is not None
        self._clock = clock
        marked_ledgers = store.marked()
        self.has_marks = marked_ledgers is not None
        self._marked = marked_ledgers or frozenset()

    def read_first(self, ledgers: Sequence[LedgerId], outcome: BatchOutcome) -> list[CheckedLedger]:
        """Return the ledgers to check; the reasons for skipping others go into the outcome."""
        # Read the marks. With compat, a ledger is checked even if it is marked, except where its
        # mark cannot be read.
        marked_ledgers = [ledger_id for ledger_id in ledgers if ledger_id in self._marked]
        marks = dict(self._store.marks_of(marked_ledgers)) if marked_ledgers else {}
        skipped = set()
        for ledger_id, mark in marks.items():
            is_readable = self._record_marked(ledger_id, mark, outcome)
            if not (is_readable and self._is_compat):
                skipped.add(ledger_id)
        if skipped:
            ledgers = [ledger_id for ledger_id in ledgers if ledger_id not in skipped]
        # Read the metadata; a ledger that is not returned was deleted.
        subjects, read_count = [], 0
        for ledger_id, versioned in self._store.read_many(ledgers):
            read_count += 1
            subject = self._check_metadata(ledger_id, versioned, outcome)
            if subject is not None:
                subject.is_marked = ledger_id in marks
                subjects.append(subject)
        if read_count < len(ledgers):
            outcome.skipped["gone"] += len(ledgers) - read_count
        return subjects

    def _check_metadata(
        self, ledger: LedgerId, versioned: Versioned | CorruptionError, outcome: BatchOutcome
    ) -> CheckedLedger | None:
        """Return a closed ledger as one to check; for others add the reason to the outcome, and
        return None: what an open ledger's bookies should hold is not yet known."""
        if isinstance(versioned, CorruptionError):
            outcome.unreadable.append((ledger, str(versioned)))
            return None
        metadata = versioned.metadata
        problems = metadata.problems()
        if problems:
            outcome.unreadable.append((ledger, f"its metadata: {'; '.join(problems)}"))
            return None
        if not metadata.closed:
            outcome.skipped[metadata.state.lower()] += 1
            return None
        return CheckedLedger(versioned, metadata.segments_with_ends())

    def read_again(
        self, subjects: Sequence[CheckedLedger], outcome: BatchOutcome
    ) -> Iterator[tuple[CheckedLedger, bool | None]]:
        """Read marks and metadata of ledgers again, as a verdict counts only if they are the same
        as before the check. Yield each with True if they are, False if they changed, and None if
        the ledger was deleted or marked meanwhile: then it needs no verdict, and is counted as
        skipped.
        """
        ledger_ids = [subject.ledger for subject in subjects]
        marks = dict(self._store.marks_of(ledger_ids))
        unmarked = [ledger_id for ledger_id in ledger_ids if ledger_id not in marks]
        current_metadata = dict(self._store.read_many(unmarked))
        for subject, ledger_id in zip(subjects, ledger_ids):
            if ledger_id in marks:
                self._record_marked(ledger_id, marks[ledger_id], outcome)
                yield subject, None
            elif ledger_id not in current_metadata:
                outcome.skipped["gone"] += 1
                yield subject, None
            else:  # damage counts as a change; the next first read reports it
                yield subject, current_metadata[ledger_id] == subject.versioned

    def _record_marked(
        self, ledger: LedgerId, mark: UnderreplicatedMark | CorruptionError, outcome: BatchOutcome
    ) -> bool:
        """Count a marked ledger as skipped, because it is being repaired; a mark older than the
        grace period is a violation. Return True; or False if the mark cannot be read, and count the
        ledger as unreadable."""
        if isinstance(mark, CorruptionError):
            outcome.unreadable.append((ledger, f"its mark: {mark}"))
            return False
        outcome.skipped["underreplicated"] += 1
        if self._grace_period is None:
            return True
        if mark.marked_at is None:
            outcome.undated += 1
            return True
        age = self._clock() - mark.marked_at
        if age > self._grace_period:
            detail = f"marked underreplicated for {age:.0f} s, {self._grace_period:g} s are allowed"
            if mark.missing_bookies:
                detail += f"; missing bookies: {' '.join(mark.missing_bookies)}"
            violation = Violation("overdue", ledger, detail=detail)
            outcome.violations.setdefault(ledger, []).append(violation)
        return True
