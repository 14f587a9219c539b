"""Checking a batch of ledgers: two looks at each, and verdicts between them.

First look: the mark, then the metadata. Between: placement of each segment, and one question a
bookie and ledger: which entries are here? Second look, only where something is amiss: a mark that
appeared, or metadata that changed, make the verdict void. Source: BP-34, "High Level Logic".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple

from bkstore.availability import Availability
from bkstore.cluster.audit.availability_queries import Answers, DueRow, Questions, ask_bookies
from bkstore.cluster.audit.batch_outcome import Outcome
from bkstore.cluster.audit.bookkeeper_compat import missing_as_built
from bkstore.cluster.audit.durability import due_places, shortage
from bkstore.cluster.audit.options import AuditOptions, EntriesOfLedger
from bkstore.cluster.audit.report import Absence, Violation, category_of
from bkstore.cluster.placement.policies import Adherence, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.formats.metadata.serialized import Mark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.model import SegmentRange

__all__ = ["Checker"]

_NOTHING = Absence(0, 0, "")


class _Lack(NamedTuple):
    """Entries of a segment that a bookie lacks."""

    segment: SegmentRange
    bookie_index: int
    missing: Availability


@dataclass(slots=True)
class _Subject:
    """A closed ledger that is being judged: its metadata as first read, and what was found.

    `silent` are bookies that gave no answer, with the reason, and the segments concerned; those
    in `absent` have nobody to answer for them.
    """

    versioned: Versioned
    segments: list[SegmentRange]
    due: bool = False
    marked: bool = False
    placement: list[Violation] = field(default_factory=list)
    lacks: list[_Lack] = field(default_factory=list)
    silent: dict[str, tuple[str, list[SegmentRange]]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as first read."""
        return self.versioned.metadata


class Checker:
    """Judges ledgers for an audit: the rules, without the order in which ledgers come.

    Threads: one `check` at a time; bookies are asked from the pool's threads.
    """

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, EntriesOfLedger],
        placement: PlacementPolicy,
        options: AuditOptions,
        clock: Callable[[], float],
        pool: ThreadPoolExecutor | None,
    ) -> None:
        """Take what to ask, and the rules' parameters."""
        self._store = store
        self._bookies = bookies
        self._options = options
        self._clock = clock
        self._pool = pool
        self._built = options.compat is not None
        self._verdict = lru_cache(1 << 16)(placement.judge)

    def check(self, ledgers: Sequence[LedgerId], *, final: bool) -> Outcome:
        """Judge some ledgers. Unless `final`, those with a silent bookie go to `again`."""
        outcome = Outcome()
        waiting = self._once(ledgers, final, outcome)
        for _ in range(self._options.redo_limit):
            outcome.redone += len(waiting)
            waiting = self._once(waiting, final, outcome) if waiting else waiting
        outcome.unsettled += waiting
        return outcome

    def _once(self, ledgers: Sequence[LedgerId], final: bool, outcome: Outcome) -> list[LedgerId]:
        """Judge ledgers once; return those that changed meanwhile, so that nothing is said."""
        subjects = [
            subject
            for ledger in ledgers
            if (subject := self._first_look(ledger, outcome)) is not None
        ]
        with _timed(outcome.seconds, "PLACEMENT_POLICY_CHECK_TIME"):
            for subject in subjects:
                subject.placement = list(self._placement_violations(subject))
        with _timed(outcome.seconds, "REPLICAS_CHECK_TIME"):
            self._check_replicas(subjects, outcome)
            settle = self._settle_as_built if self._built else self._settle
            return [
                subject.metadata.ledger
                for subject in subjects
                if not settle(subject, final, outcome)
            ]

    # -- looks

    def _first_look(self, ledger: LedgerId, outcome: Outcome) -> _Subject | None:
        """Return the ledger as something to judge; None, and why, if it is not."""
        mark = self._store.mark_of(ledger)
        if mark is not None:
            self._take_mark(ledger, mark, outcome)
            if not self._built:
                return None
        try:
            versioned = self._store.read(ledger)
        except NoSuchLedger:
            outcome.skipped["gone"] += 1
            return None
        except CorruptionError as error:
            outcome.unreadable.append((ledger, str(error)))
            return None
        metadata = versioned.metadata
        problems = metadata.problems()
        if problems:
            outcome.unreadable.append((ledger, f"its metadata: {'; '.join(problems)}"))
            return None
        if not metadata.closed:
            outcome.skipped[metadata.state.lower()] += 1
            return None
        return _Subject(versioned, metadata.segments_with_ends(), marked=mark is not None)

    def _take_mark(self, ledger: LedgerId, mark: Mark, outcome: Outcome) -> None:
        """Skip a marked ledger; a mark that is too old is a violation."""
        outcome.skipped["underreplicated"] += 1
        grace = self._options.grace_period
        if grace is None:
            return
        if mark.marked_at is None:
            outcome.undated += 1
            return
        age = self._clock() - mark.marked_at
        if age > grace:
            detail = f"marked underreplicated for {age:.0f} s, {grace:g} s are allowed"
            if mark.missing_bookies:
                detail += f"; missing bookies: {' '.join(mark.missing_bookies)}"
            violation = Violation("overdue", ledger, detail=detail)
            outcome.found.setdefault(ledger, []).append(violation)

    def _unchanged(self, subject: _Subject, outcome: Outcome) -> bool | None:
        """Look again: True if all is as before, False if it changed, None if it is skipped."""
        ledger = subject.metadata.ledger
        mark = self._store.mark_of(ledger)
        if mark is not None:
            self._take_mark(ledger, mark, outcome)
            return None
        try:
            return self._store.read(ledger) == subject.versioned
        except NoSuchLedger:
            outcome.skipped["gone"] += 1
            return None
        except CorruptionError:
            return False  # the next first look says what is wrong with it

    # -- rules

    def _placement_violations(self, subject: _Subject) -> Iterator[Violation]:
        metadata = subject.metadata
        sizes = metadata.write_quorum_size, metadata.ack_quorum_size
        for segment in subject.segments:
            verdict, reason = self._verdict(segment.ensemble, *sizes)
            if verdict == Adherence.MEETS_STRICT:
                continue
            category = "placement" if verdict == Adherence.FAIL else "placement_soft"
            detail = f"ensemble {' '.join(segment.ensemble)}: {reason}"
            yield Violation(
                category,  # type: ignore[arg-type]
                metadata.ledger,
                segment.first_entry,
                detail=detail,
            )

    def _check_replicas(self, subjects: list[_Subject], outcome: Outcome) -> None:
        """Ask each bookie once for each ledger it should hold entries of; note what it lacks."""
        asked: dict[str, Questions] = {}
        for number, subject in enumerate(subjects):
            if self._built and subject.marked:
                continue
            for bookie, row in _due_rows(number, subject):
                asked.setdefault(bookie, Questions()).add(row)
                subject.due = True
        ledgers = [subject.metadata.ledger for subject in subjects]
        answers = ask_bookies(self._bookies, asked, ledgers, self._pool)
        for bookie, found in answers.items():
            outcome.replicas += len(found.held)
            self._note(subjects, bookie, asked[bookie], found)

    def _note(
        self, subjects: list[_Subject], bookie: str, asked: Questions, found: Answers
    ) -> None:
        lacks = _lacks_as_built(asked, found) if self._built else found.lacks(asked)
        for row, missing in lacks:
            subject = subjects[row[0]]
            subject.lacks.append(_Lack(_segment(subject, row), row[3], missing))
        if found.silent:
            for row in asked.rows:
                if row[0] in found.silent:
                    subject = subjects[row[0]]
                    if found.absent:
                        subject.absent.add(bookie)
                    silent = subject.silent.setdefault(bookie, (found.silent[row[0]], []))
                    silent[1].append(_segment(subject, row))

    # -- verdicts

    def _settle(self, subject: _Subject, final: bool, outcome: Outcome) -> bool:
        """Bring a ledger's verdict into the outcome; False if it changed and has none."""
        ledger = subject.metadata.ledger
        if subject.placement or subject.lacks or subject.silent:
            unchanged = self._unchanged(subject, outcome)
            if not unchanged:
                return unchanged is None
            if subject.silent and not final:
                outcome.again.append(ledger)
                return True
            unreachable = list(self._unavailable(subject, outcome))
            violations = [*subject.placement, *_durability(subject), *unreachable]
            if violations:
                outcome.found[ledger] = violations
        outcome.checked += 1
        outcome.empty += not subject.due
        return True

    def _settle_as_built(self, subject: _Subject, final: bool, outcome: Outcome) -> bool:
        """As built: no second look, and silent bookies are only listed."""
        ledger = subject.metadata.ledger
        violations = [*subject.placement, *_durability(subject)]
        if violations:
            outcome.found.setdefault(ledger, []).extend(violations)
        if subject.silent:
            outcome.unanswered[ledger] = tuple(sorted(subject.silent))
        if not subject.marked:
            outcome.checked += 1
            outcome.empty += not subject.due
        return True

    def _unavailable(self, subject: _Subject, outcome: Outcome) -> Iterator[Violation]:
        """Ask both questions about bookies that gave no answer to the last look either.

        A violation, unless the bookie is not registered and its unavailability is known. Where
        the store does not tell, and no answer it gives decides, nothing is judged.
        """
        if not subject.silent:
            return
        registered = self._store.registered_bookies()
        unavailable = self._store.unavailable_bookies()
        unknown = []
        absent = rows = False
        for bookie, (reason, segments) in sorted(subject.silent.items()):
            wrong = []
            if registered is not None and bookie in registered:
                wrong.append("it is registered")
            if unavailable is not None and bookie not in unavailable:
                wrong.append("its unavailability is not known")
            if wrong:
                detail = f"{reason}; {', and '.join(wrong)}"
                if bookie in subject.absent:
                    found = Absence(1, len(segments), detail)
                    outcome.absent[bookie] = outcome.absent.get(bookie, _NOTHING) + found
                    absent = True
                    continue
                for segment in segments:
                    rows = True
                    yield Violation(
                        "bookie_unavailable",
                        subject.metadata.ledger,
                        segment.first_entry,
                        bookie,
                        None,
                        detail,
                    )
            elif registered is None or unavailable is None:
                unknown.append(bookie)
            else:
                outcome.excused[bookie] += 1
        outcome.without += absent and not rows
        if unknown:
            outcome.unanswered[subject.metadata.ledger] = tuple(unknown)


@contextmanager
def _timed(seconds: Counter[str], timer: str) -> Iterator[None]:
    begin = perf_counter()
    yield
    seconds[timer] += perf_counter() - begin  # type: ignore[assignment]


def _due_rows(number: int, subject: _Subject) -> Iterator[tuple[str, DueRow]]:
    """Yield (bookie, row) for each place in a segment that entries go to."""
    size, quorum = subject.metadata.ensemble_size, subject.metadata.write_quorum_size
    for bookie, first, last, at in due_places(subject.segments, size, quorum):
        yield bookie, (number, first, last, at, size, quorum)


def _segment(subject: _Subject, row: DueRow) -> SegmentRange:
    at = bisect_left(subject.segments, row[1], key=lambda part: part.first_entry)
    return subject.segments[at]


def _lacks_as_built(asked: Questions, found: Answers) -> Iterator[tuple[DueRow, Availability]]:
    held = dict(found.held)
    for row in asked.rows:
        if row[0] not in found.silent:
            missing = missing_as_built(held[row[0]], *row[1:4], row[4:])
            if missing:
                yield row, missing


def _durability(subject: _Subject) -> Iterator[Violation]:
    """Yield a row for each segment and bookie; the worst entry decides the category of all."""
    worst = shortage(lack.missing for lack in subject.lacks)
    if worst is None:
        return
    metadata = subject.metadata
    quorum, ack = metadata.write_quorum_size, metadata.ack_quorum_size
    left = quorum - worst.missing
    category = category_of(left, quorum, ack)
    for segment, at, missing in subject.lacks:
        detail = (
            f"index {at} of {' '.join(segment.ensemble)}; W {quorum}, A {ack}; "
            f"entry {worst.entry} of the ledger lacks {worst.missing} of {quorum} replicas"
        )
        yield Violation(
            category, metadata.ledger, segment.first_entry, segment.ensemble[at], missing, detail
        )
