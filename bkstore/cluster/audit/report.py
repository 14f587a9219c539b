"""What an audit found: violations, counts by category over the whole run, and what was skipped.

Categories and stats: BP-34; names of stats: `replication/AuditorStats` (reference page of the
`audit` command: `docs/auditing.md`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from bkstore.counts import counted
from bkstore.durability import CATEGORIES, Category, Violation, violations_table
from bkstore.ids import LedgerId
from bkstore.metrics import AUDIT_GAUGES, AUDIT_TIMERS
from bkstore.tables import Table

Skip = Literal["open", "in_recovery", "underreplicated", "gone"]
_SKIPS: tuple[Skip, ...] = get_args(Skip)

_GAUGES: dict[str, Category] = dict(zip(AUDIT_GAUGES, CATEGORIES))


class Absence(NamedTuple):
    """A bookie that nobody answers for: how much was judged without it, and what is wrong."""

    ledgers: int
    segments: int
    reason: str

    def __add__(self, other: object) -> Absence:
        """Return both, which are about other ledgers, as one."""
        if not isinstance(other, Absence):
            return NotImplemented
        return Absence(self.ledgers + other.ledgers, self.segments + other.segments, other.reason)


def _absent(bookie: str, found: Absence) -> Violation:
    segments = counted(found.segments, "segment")
    concerned = f"{segments} of {_ledgers(found.ledgers)} judged without it"
    return Violation("bookie_unavailable", None, None, bookie, None, f"{found.reason}: {concerned}")


@dataclass(kw_only=True)
class AuditCounts:
    """What becomes of ledgers, of a batch or of a whole run; counts are of ledgers.

    Ledgers are in `skipped` by reason, in `unreadable` (their metadata cannot be read or contradict
    themselves), in `unsettled` (their metadata changed faster than they could be judged), or were
    `checked`. Of checked ledgers `empty` hold no entry, and those in
    `unanswered` have replicas of which nothing is known, as a bookie gave no answer and the store
    does not tell whether that is a violation; `excused` counts those that lie on a bookie which is
    known to be unavailable. `absent` are bookies that nobody answers for: how many ledgers and
    segments were judged without each, and why that is a violation; `without` counts the ledgers
    of which such a bookie is the only one without an answer. `unlisted` are bookies that are there
    and list no entries: what was judged without each, and why. `replicas` are answers of bookies,
    `redone` judgements begun anew because a ledger changed, `undated` marks without a time.
    """

    checked: int = 0
    empty: int = 0
    replicas: int = 0
    redone: int = 0
    undated: int = 0
    without: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    absent: dict[str, Absence] = field(default_factory=dict)
    unlisted: dict[str, Absence] = field(default_factory=dict)
    unreadable: list[tuple[LedgerId, str]] = field(default_factory=list)
    unsettled: list[LedgerId] = field(default_factory=list)
    unanswered: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)

    def add_counts(self, other: AuditCounts) -> None:
        """Add what became of other ledgers."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for of in ABSENCES:
            known = getattr(self, of)
            for bookie, absence in getattr(other, of).items():
                known[bookie] = known[bookie] + absence if bookie in known else absence
        self.unreadable += other.unreadable
        self.unsettled += other.unsettled
        self.unanswered.update(other.unanswered)


NUMBERS = ("checked", "empty", "replicas", "redone", "undated", "without")
COUNTERS = ("skipped", "seconds", "excused")
ABSENCES = ("absent", "unlisted")
"""Fields of `AuditCounts` by what they are."""


@dataclass
class AuditReport(AuditCounts):
    """What one run saw. `ledgers` were listed, `looks` later looks were taken."""

    started_at: float = 0.0
    ended_at: float | None = None
    ledgers: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    not_judged: list[str] = field(default_factory=list)
    looks: int = 0

    @property
    def clean(self) -> bool:
        """Whether there is no violation, and nothing that should have been judged was not."""
        rest = (self.violations, self.unreadable, self.unsettled, self.unanswered, self.unlisted)
        return self.ended_at is not None and not any(rest)

    @property
    def nothing(self) -> bool:
        """Whether no ledger was checked, or none of those with entries by a bookie's answer.

        Such an audit has not passed, even if it is `clean`.
        """
        return not self.checked or (self.checked > self.empty and not self.replicas)

    @property
    def ledgers_by_outcome(self) -> dict[str, int]:
        """Ledgers by what became of them: checked, skipped by reason, or without a verdict."""
        found = {"checked": self.checked} | {str(why): self.skipped[why] for why in _SKIPS}
        return found | {"unreadable": len(self.unreadable), "unsettled": len(self.unsettled)}

    @property
    def stats(self) -> dict[str, float]:
        """Gauges and timers (milliseconds) under upstream's names, scope replication/auditor."""
        found: dict[str, float] = {name: self.counts[which] for name, which in _GAUGES.items()}
        for timer in AUDIT_TIMERS:
            found[timer] = round(self.seconds[timer] * 1000, 3)
        return found

    def add(self, violations: list[Violation]) -> None:
        """Take all violations of one ledger, and count the ledger once in each category.

        A ledger that fails the placement policy anywhere does not count as meeting it softly.
        """
        categories = {each.category for each in violations}
        if "placement" in categories:
            categories.discard("placement_soft")
        self.counts.update(categories)
        self.violations += violations

    def table(self) -> Table:
        """Return the `violations` table."""
        return violations_table(self.violations)

    def finish(self, at: float) -> None:
        """Note the end of the run, add a row for each absent bookie, sort what was found."""
        self.ended_at = at
        self.violations += [_absent(name, found) for name, found in self.absent.items()]
        if self.without:
            self.counts["bookie_unavailable"] += self.without
        self.violations.sort(key=lambda each: each.order)
        self.unreadable.sort()
        self.unsettled.sort()
        self.unanswered = dict(sorted(self.unanswered.items()))

    def summary(self) -> list[str]:
        """Return the run in sentences, what matters most first."""
        lines = [
            f"{name}: {_ledgers(self.counts[name])}" for name in CATEGORIES if self.counts[name]
        ]
        lines += [f"not judged: {reason}" for reason in self.not_judged]
        if self.unanswered:
            silent = sorted({name for names in self.unanswered.values() for name in names})
            partly = _ledgers(len(self.unanswered))
            lines.append(f"{partly} judged in part: no answer from {', '.join(silent)}")
        lines += [
            f"not judged: what {name} holds of {_ledgers(found.ledgers)}: {found.reason}"
            for name, found in sorted(self.unlisted.items())
        ]
        lines += [
            f"{_ledgers(count)} judged in part: {name} is known to be unavailable"
            for name, count in sorted(self.excused.items())
        ]
        lines += [f"ledger {ledger} not judged: {reason}" for ledger, reason in self.unreadable]
        lines += [f"ledger {ledger} not judged: it kept changing" for ledger in self.unsettled]
        skipped = [f"{self.skipped[why]} {why}" for why in _SKIPS if self.skipped[why]]
        lines.append(
            f"{self.checked} of {_ledgers(self.ledgers)} checked ({self.empty} of them empty), "
            f"{counted(self.replicas, 'answer')} of bookies; "
            f"skipped: {', '.join(skipped) or 'none'}"
        )
        return lines


def _ledgers(count: int) -> str:
    return counted(count, "ledger")
