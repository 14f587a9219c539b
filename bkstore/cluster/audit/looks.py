"""The two looks at ledgers of a batch: what the store says before, and again before a verdict.

Marks are listed once a run, without being read. A mark in the list is read when its ledger's
batch comes: one that is gone by then counts no more. A mark that comes later counts at the second
look, which is taken where something is amiss, and reads the mark of each ledger. Source: BP-34,
"High Level Logic".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bkstore.cluster.audit.batch_outcome import Outcome
from bkstore.cluster.audit.options import AuditOptions
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.durability import MissingReplicas, Violation
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.serialized import Mark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.model import SegmentRange

_Silence = dict[str, tuple[str, list[SegmentRange]]]
"""Bookies without an answer: the reason, and the segments concerned."""


@dataclass(slots=True)
class Subject:
    """A closed ledger that is being judged: its metadata as first read, and what was found.

    `silent` are bookies that gave no answer; those in `absent` have nobody to answer for them.
    `unlisted` are bookies that answer, but list no entries.
    """

    versioned: Versioned
    segments: list[SegmentRange]
    due: bool = False
    marked: bool = False
    placement: list[Violation] = field(default_factory=list)
    missing: list[MissingReplicas] = field(default_factory=list)
    silent: _Silence = field(default_factory=dict)
    unlisted: _Silence = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as first read."""
        return self.versioned.metadata

    @property
    def amiss(self) -> bool:
        """Whether there is something to look at again before a verdict."""
        return bool(self.placement or self.missing or self.silent or self.unlisted)


class BookieLists:
    """Which bookies are registered, and known to be unavailable; each is read once, if ever."""

    def __init__(self, store: MetadataStore) -> None:
        """Take the store."""
        self._store = store

    @cached_property
    def registered(self) -> frozenset[str] | None:
        """As `MetadataStore.registered_bookies`."""
        return self._store.registered_bookies()

    @cached_property
    def unavailable(self) -> frozenset[str] | None:
        """As `MetadataStore.unavailable_bookies`."""
        return self._store.unavailable_bookies()


class Looks:
    """Reads marks and metadata of a run, a batch at a time; lists the marks when it is made.

    `tells_marks`: whether the store tells of marks at all.
    """

    def __init__(
        self, store: MetadataStore, options: AuditOptions, clock: Callable[[], float]
    ) -> None:
        """List the marks."""
        self._store = store
        self._grace = options.grace_period
        self._built = options.compat is not None
        self._clock = clock
        listed = store.marked()
        self.tells_marks = listed is not None
        self._marked = listed or frozenset()

    def first(self, ledgers: Sequence[LedgerId], outcome: Outcome) -> list[Subject]:
        """Return the ledgers that are to be judged; why not, of the others, is in the outcome."""
        named = [name for name in ledgers if name in self._marked]
        marks = dict(self._store.marks_of(named)) if named else {}
        taken = {name: self._taken(name, mark, outcome) for name, mark in marks.items()}
        left = {name for name, read in taken.items() if not (read and self._built)}
        wanted = [name for name in ledgers if name not in left] if left else ledgers
        subjects, there = [], 0
        for name, found in self._store.read_many(wanted):
            there += 1
            subject = self._subject(name, found, outcome)
            if subject is not None:
                subject.marked = name in marks
                subjects.append(subject)
        if there < len(wanted):
            outcome.skipped["gone"] += len(wanted) - there
        return subjects

    def _subject(
        self, ledger: LedgerId, found: Versioned | CorruptionError, outcome: Outcome
    ) -> Subject | None:
        if isinstance(found, CorruptionError):
            outcome.unreadable.append((ledger, str(found)))
            return None
        metadata = found.metadata
        problems = metadata.problems()
        if problems:
            outcome.unreadable.append((ledger, f"its metadata: {'; '.join(problems)}"))
            return None
        if not metadata.closed:
            outcome.skipped[metadata.state.lower()] += 1
            return None
        return Subject(found, metadata.segments_with_ends())

    def second(
        self, subjects: Sequence[Subject], outcome: Outcome
    ) -> Iterator[tuple[Subject, bool | None]]:
        """Yield each ledger as it is now: True if it is as before, False if it changed, None if
        it is skipped."""
        names = [subject.metadata.ledger for subject in subjects]
        marks = dict(self._store.marks_of(names))
        now = dict(self._store.read_many([name for name in names if name not in marks]))
        for subject in subjects:
            name = subject.metadata.ledger
            if name in marks:
                self._taken(name, marks[name], outcome)
                yield subject, None
            elif name not in now:
                outcome.skipped["gone"] += 1
                yield subject, None
            else:  # damage is told by the next first look
                yield subject, now[name] == subject.versioned

    def _taken(self, ledger: LedgerId, mark: Mark | CorruptionError, outcome: Outcome) -> bool:
        """Skip a marked ledger, which is being repaired; a mark that is too old is a violation.

        One that cannot be read leaves the ledger without a verdict: then False.
        """
        if isinstance(mark, CorruptionError):
            outcome.unreadable.append((ledger, f"its mark: {mark}"))
            return False
        outcome.skipped["underreplicated"] += 1
        if self._grace is None:
            return True
        if mark.marked_at is None:
            outcome.undated += 1
            return True
        age = self._clock() - mark.marked_at
        if age > self._grace:
            detail = f"marked underreplicated for {age:.0f} s, {self._grace:g} s are allowed"
            if mark.missing_bookies:
                detail += f"; missing bookies: {' '.join(mark.missing_bookies)}"
            violation = Violation("overdue", ledger, detail=detail)
            outcome.found.setdefault(ledger, []).append(violation)
        return True
