"""Checking a batch of ledgers: two looks at each, and verdicts between them.

First look: the mark, then the metadata. Between: placement of each segment, and one question a
bookie and ledger: which entries are here? Second look, only where something is amiss: a mark that
appeared, or metadata that changed, make the verdict void (`looks`). Source: BP-34, "High Level
Logic".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter

from bkstore.availability import Availability
from bkstore.cluster.audit.availability_queries import Answers, DueRow, Questions, ask_bookies
from bkstore.cluster.audit.batch_outcome import Outcome
from bkstore.cluster.audit.bookkeeper_compat import missing_as_built
from bkstore.cluster.audit.looks import BookieLists, Looks, Subject
from bkstore.cluster.audit.options import AuditOptions, EntriesOfLedger
from bkstore.cluster.audit.report import Absence
from bkstore.cluster.placement.policies import Adherence, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore
from bkstore.durability import (
    MissingReplicas,
    Violation,
    due_places,
    durability_violations,
    shortage,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata.model import SegmentRange

_NOTHING = Absence(0, 0, "")


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
        self._pool = pool
        self._built = options.compat is not None
        self.looks = Looks(store, options, clock)
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
        subjects = self.looks.first(ledgers, outcome)
        with _timed(outcome.seconds, "PLACEMENT_POLICY_CHECK_TIME"):
            for subject in subjects:
                subject.placement = list(self._placement_violations(subject))
        with _timed(outcome.seconds, "REPLICAS_CHECK_TIME"):
            self._check_replicas(subjects, outcome)
            if self._built:
                for subject in subjects:
                    self._settle_as_built(subject, outcome)
                return []
            return self._settle(subjects, final, outcome)

    # -- rules

    def _placement_violations(self, subject: Subject) -> Iterator[Violation]:
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

    def _check_replicas(self, subjects: list[Subject], outcome: Outcome) -> None:
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

    def _note(self, subjects: list[Subject], bookie: str, asked: Questions, found: Answers) -> None:
        lacks = _lacks_as_built(asked, found) if self._built else found.lacks(asked)
        for row, missing in lacks:
            subject = subjects[row[0]]
            first, _, ensemble = _segment(subject, row)
            subject.missing.append(MissingReplicas(first, ensemble, row[3], missing))
        for row in asked.rows if found.silent or found.unlisted else ():
            subject = subjects[row[0]]
            for told, reasons in (
                (subject.silent, found.silent),
                (subject.unlisted, found.unlisted),
            ):
                if row[0] in reasons:
                    told.setdefault(bookie, (reasons[row[0]], []))[1].append(_segment(subject, row))
            if found.absent:
                subject.absent.add(bookie)

    # -- verdicts

    def _settle(self, subjects: Sequence[Subject], final: bool, outcome: Outcome) -> list[LedgerId]:
        """Bring verdicts into the outcome; return the ledgers that changed and have none."""
        amiss = [subject for subject in subjects if subject.amiss]
        for subject in subjects:
            if not subject.amiss:
                outcome.checked += 1
                outcome.empty += not subject.due
        if not amiss:
            return []
        changed: list[LedgerId] = []
        lists = BookieLists(self._store)
        for subject, same in self.looks.second(amiss, outcome):
            ledger = subject.metadata.ledger
            if same is False:
                changed.append(ledger)
            elif same and subject.silent and not final:
                outcome.again.append(ledger)
            elif same:
                self._report(subject, lists, outcome)
        return changed

    def _report(self, subject: Subject, lists: BookieLists, outcome: Outcome) -> None:
        """Bring in the verdict on a ledger of which something is amiss."""
        unreachable = list(self._unavailable(subject, lists, outcome))
        violations = [*subject.placement, *_durability(subject), *unreachable]
        if violations:
            outcome.found[subject.metadata.ledger] = violations
        for bookie, (reason, segments) in subject.unlisted.items():
            found = Absence(1, len(segments), reason)
            outcome.unlisted[bookie] = outcome.unlisted.get(bookie, _NOTHING) + found
        outcome.checked += 1
        outcome.empty += not subject.due

    def _settle_as_built(self, subject: Subject, outcome: Outcome) -> None:
        """As built: no second look, and bookies without an answer are only listed."""
        ledger = subject.metadata.ledger
        violations = [*subject.placement, *_durability(subject)]
        if violations:
            outcome.found.setdefault(ledger, []).extend(violations)
        if subject.silent or subject.unlisted:
            outcome.unanswered[ledger] = tuple(sorted({*subject.silent, *subject.unlisted}))
        if not subject.marked:
            outcome.checked += 1
            outcome.empty += not subject.due

    def _unavailable(
        self, subject: Subject, lists: BookieLists, outcome: Outcome
    ) -> Iterator[Violation]:
        """Ask both questions about bookies that gave no answer to the last look either.

        A violation, unless the bookie is not registered and its unavailability is known. Where
        the store does not tell which are registered, and no answer it gives decides, nothing is
        judged.
        """
        if not subject.silent:
            return
        registered, unavailable = lists.registered, lists.unavailable
        unknown = []
        absent = rows = False
        for bookie, (reason, segments) in sorted(subject.silent.items()):
            wrong = []
            if registered is not None and bookie in registered:
                wrong.append("it is registered")
            if unavailable is not None and bookie not in unavailable:
                wrong.append("its unavailability is not known")
            elif unavailable is None and registered is not None and not wrong:
                wrong += ["it is not registered", "nobody tells whether that is known"]
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


def _due_rows(number: int, subject: Subject) -> Iterator[tuple[str, DueRow]]:
    """Yield (bookie, row) for each place in a segment that entries go to."""
    size, quorum = subject.metadata.ensemble_size, subject.metadata.write_quorum_size
    for bookie, first, last, at in due_places(subject.segments, size, quorum):
        yield bookie, (number, first, last, at, size, quorum)


def _segment(subject: Subject, row: DueRow) -> SegmentRange:
    at = bisect_left(subject.segments, row[1], key=lambda part: part.first_entry)
    return subject.segments[at]


def _lacks_as_built(asked: Questions, found: Answers) -> Iterator[tuple[DueRow, Availability]]:
    held = dict(found.held)
    for row in asked.rows:
        if row[0] in held:
            missing = missing_as_built(held[row[0]], *row[1:4], row[4:])
            if missing:
                yield row, missing


def _durability(subject: Subject) -> Iterator[Violation]:
    """Return the rows about replicas that are missing."""
    worst = shortage(each.missing for each in subject.missing)
    if worst is None:
        return iter(())
    metadata = subject.metadata
    quorums = metadata.write_quorum_size, metadata.ack_quorum_size
    return durability_violations(metadata.ledger, subject.missing, worst, *quorums)
