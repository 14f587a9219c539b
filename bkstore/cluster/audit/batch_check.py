"""Check a batch of ledgers between two reads of their metadata.

The mark (that a ledger is underreplicated) and the metadata are read, the placement of each segment
is judged, and each bookie is asked which entries it has of each ledger. Ledgers with a problem are
read again: the verdict is void if a mark appeared or the metadata changed (`ledger_snapshots`). The
ledgers under check are `subjects`, and numbered by their index there. Source: BP-34, "High Level
Logic".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from time import perf_counter

from bkstore.availability import Availability
from bkstore.cluster.audit.availability_queries import (
    AvailabilityQuery,
    AvailabilityResponse,
    ExpectedRow,
    query_bookies,
)
from bkstore.cluster.audit.batch_outcome import BatchOutcome
from bkstore.cluster.audit.bookkeeper_compat import missing_as_in_bookkeeper
from bkstore.cluster.audit.ledger_snapshots import CheckedLedger, LedgerSnapshots
from bkstore.cluster.audit.options import AuditOptions, AvailabilitySource
from bkstore.cluster.audit.report import Absence, add_absence
from bkstore.cluster.audit.unavailable_bookies import BookieLists, unavailability_violations
from bkstore.cluster.placement.policies import Adherence, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore
from bkstore.durability.missing_entries import expected_replicas
from bkstore.durability.violations import (
    Category,
    MissingReplicas,
    Violation,
    durability_violations,
    find_worst_shortage,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata.model import SegmentRange


class BatchChecker:
    """Checks ledgers for an audit. Threads: one `check` at a time; `pool` queries bookies."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, AvailabilitySource],
        placement: PlacementPolicy,
        options: AuditOptions,
        clock: Callable[[], float],
        pool: ThreadPoolExecutor | None,
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._options = options
        self._pool = pool
        self._is_compat = options.compat is not None
        self.snapshots = LedgerSnapshots(store, options, clock)
        self._judge_placement = lru_cache(1 << 16)(placement.judge)  # ensembles repeat

    def check(self, ledgers: list[LedgerId], *, final: bool) -> BatchOutcome:
        """Check some ledgers; those that change meanwhile are checked again, up to `redo_limit`
        times, then count as unsettled. Unless the round is `final`, ledgers with a bookie that did
        not answer go to `to_recheck` of the outcome, without a verdict."""
        outcome = BatchOutcome()
        changed = self._check_once(ledgers, final, outcome)
        for _ in range(self._options.redo_limit):
            if changed:
                outcome.redone += len(changed)
                changed = self._check_once(changed, final, outcome)
        outcome.unsettled += changed
        return outcome

    def _check_once(
        self, ledgers: list[LedgerId], final: bool, outcome: BatchOutcome
    ) -> list[LedgerId]:
        """Check ledgers once; return those that changed meanwhile and so have no verdict."""
        subjects = self.snapshots.read_first(ledgers, outcome)
        with _add_elapsed_time(outcome.seconds, "PLACEMENT_POLICY_CHECK_TIME"):
            for subject in subjects:
                subject.placement_violations = list(self._placement_violations(subject))
        with _add_elapsed_time(outcome.seconds, "REPLICAS_CHECK_TIME"):
            self._check_replicas(subjects, outcome)
            if self._is_compat:
                for subject in subjects:
                    self._add_compat_verdict(subject, outcome)
                return []
            return self._add_verdicts(subjects, final, outcome)

    # -- rules

    def _placement_violations(self, subject: CheckedLedger) -> Iterator[Violation]:
        """Yield a violation for each segment whose ensemble does not strictly meet the policy."""
        metadata = subject.metadata
        quorums = metadata.write_quorum_size, metadata.ack_quorum_size
        for segment in subject.segments:
            verdict, reason = self._judge_placement(segment.ensemble, *quorums)
            if verdict == Adherence.MEETS_STRICT:
                continue
            category: Category = "placement" if verdict == Adherence.FAIL else "placement_soft"
            detail = f"ensemble {' '.join(segment.ensemble)}: {reason}"
            yield Violation(category, metadata.ledger, segment.first_entry, detail=detail)

    def _check_replicas(self, subjects: list[CheckedLedger], outcome: BatchOutcome) -> None:
        """Query the bookies for the entries expected on them; add the entries that they lack, or
        that are unknown, to the subjects. A query has a row for each segment of a ledger with the
        bookie."""
        queries: dict[str, AvailabilityQuery] = {}
        for ledger_number, subject in enumerate(subjects):
            if self._is_compat and subject.is_marked:  # BookKeeper's replicas check skips it
                continue
            for bookie, row in _expected_rows(ledger_number, subject):
                queries.setdefault(bookie, AvailabilityQuery()).add(row)
                subject.has_expected_entries = True
        ledgers = [subject.ledger for subject in subjects]
        answers = query_bookies(self._bookies, queries, ledgers, self._pool)
        for bookie, bookie_answers in answers.items():
            answer_count = len(bookie_answers.availabilities)
            outcome.replicas += answer_count
            if answer_count:
                outcome.answers[bookie] += answer_count
            self._record_answers(subjects, bookie, queries[bookie], bookie_answers)

    def _record_answers(
        self,
        subjects: list[CheckedLedger],
        bookie: str,
        query: AvailabilityQuery,
        answers: AvailabilityResponse,
    ) -> None:
        """Add a bookie's missing and unknown entries to the subjects that its query is about."""
        find_missing = _compat_missing if self._is_compat else AvailabilityResponse.find_missing
        for row, missing in find_missing(answers, query):
            subject = subjects[row.ledger_number]
            first, _, ensemble = _segment_of(subject, row)
            replicas = MissingReplicas(first, ensemble, row.bookie_index, missing)
            subject.missing_replicas.append(replicas)
        if not answers.unanswered and not answers.unlisted:
            return
        # Record why it is unknown what the bookie has of a ledger, and in which segments.
        for row in query.rows:
            ledger_number = row.ledger_number
            subject = subjects[ledger_number]
            for unknown_entries, reasons in (
                (subject.unanswered, answers.unanswered),
                (subject.unlisted, answers.unlisted),
            ):
                if ledger_number in reasons:
                    _, segments = unknown_entries.setdefault(bookie, (reasons[ledger_number], []))
                    segments.append(_segment_of(subject, row))
            if answers.absent:
                subject.absent.add(bookie)

    # -- verdicts

    def _add_verdicts(
        self, subjects: Sequence[CheckedLedger], final: bool, outcome: BatchOutcome
    ) -> list[LedgerId]:
        """Add verdicts to the outcome; return the ledgers that changed and so have none. In the
        `final` round a ledger gets its verdict even if bookies did not answer."""
        # A ledger without any problem needs no second read.
        with_problems = [subject for subject in subjects if subject.has_problem]
        for subject in subjects:
            if not subject.has_problem:
                _count_checked(subject, outcome)
        if not with_problems:
            return []
        # Read the others again; a verdict counts only if mark and metadata are unchanged.
        changed: list[LedgerId] = []
        lists = BookieLists(self._store)
        for subject, is_unchanged in self.snapshots.read_again(with_problems, outcome):
            # None: it was deleted or marked meanwhile, and needs no verdict
            if is_unchanged is False:
                changed.append(subject.ledger)
            elif is_unchanged and subject.unanswered and not final:
                outcome.to_recheck.append(subject.ledger)
            elif is_unchanged:
                self._add_verdict(subject, lists, outcome)
        return changed

    def _add_verdict(
        self, subject: CheckedLedger, lists: BookieLists, outcome: BatchOutcome
    ) -> None:
        """Record a ledger's violations, what bookies did not answer about it, and the counts."""
        unreachable = list(unavailability_violations(subject, lists, outcome))
        violations = [*subject.placement_violations, *_durability_violations(subject), *unreachable]
        if violations:
            outcome.violations[subject.ledger] = violations
        for bookie, (reason, segments) in subject.unlisted.items():
            # of one ledger
            add_absence(outcome.unlisted, bookie, Absence(1, len(segments), reason))
        _count_checked(subject, outcome)

    def _add_compat_verdict(self, subject: CheckedLedger, outcome: BatchOutcome) -> None:
        """Add a verdict as BookKeeper does: without a second read, and bookies that did not answer
        are no violation, but only listed."""
        violations = [*subject.placement_violations, *_durability_violations(subject)]
        if violations:
            outcome.violations.setdefault(subject.ledger, []).extend(violations)
        if subject.unanswered or subject.unlisted:
            silent = {*subject.unanswered, *subject.unlisted}
            outcome.unanswered[subject.ledger] = tuple(sorted(silent))
        if not subject.is_marked:
            _count_checked(subject, outcome)


@contextmanager
def _add_elapsed_time(seconds: Counter[str], timer: str) -> Iterator[None]:
    """Add the time that the block takes to a timer, unless it raises."""
    started = perf_counter()
    yield
    seconds[timer] += perf_counter() - started  # type: ignore[assignment]


def _count_checked(subject: CheckedLedger, outcome: BatchOutcome) -> None:
    """Count a ledger that has a verdict, and its entries."""
    outcome.checked += 1
    outcome.empty += not subject.has_expected_entries
    outcome.entries += subject.metadata.last_entry_id + 1


def _expected_rows(ledger_number: int, subject: CheckedLedger) -> Iterator[tuple[str, ExpectedRow]]:
    """Yield (bookie, row) for each bookie of each segment that should hold entries."""
    sizes = subject.metadata.ensemble_size, subject.metadata.write_quorum_size
    for bookie, first, last, bookie_index in expected_replicas(subject.segments, *sizes):
        yield bookie, ExpectedRow(ledger_number, first, last, bookie_index, *sizes)


def _segment_of(subject: CheckedLedger, row: ExpectedRow) -> SegmentRange:
    """Return the segment that begins with the row's first entry."""
    index = bisect_left(subject.segments, row.first_entry, key=attrgetter("first_entry"))
    return subject.segments[index]


def _compat_missing(
    answers: AvailabilityResponse, query: AvailabilityQuery
) -> Iterator[tuple[ExpectedRow, Availability]]:
    """Yield (row, entries that BookKeeper's check reports as missing)."""
    availabilities = dict(answers.availabilities)
    for row in query.rows:
        held = availabilities.get(row.ledger_number)
        if held is None:
            continue
        sizes = row.ensemble_size, row.write_quorum
        missing = missing_as_in_bookkeeper(
            held, row.first_entry, row.last_entry, row.bookie_index, sizes
        )
        if missing:
            yield row, missing


def _durability_violations(subject: CheckedLedger) -> Iterator[Violation]:
    """Return the ledger's violations by missing replicas, none if each entry has all replicas."""
    worst = find_worst_shortage(replicas.missing for replicas in subject.missing_replicas)
    if worst is None:
        return iter(())
    metadata = subject.metadata
    quorums = metadata.write_quorum_size, metadata.ack_quorum_size
    return durability_violations(metadata.ledger, subject.missing_replicas, worst, *quorums)
