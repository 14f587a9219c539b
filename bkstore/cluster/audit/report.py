"""The report of an audit: violations, counts by category, and the ledgers that were skipped.

Categories and stats: BP-34; names of stats: `replication/AuditorStats`. Page: `docs/auditing.md`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from bkstore.counts import format_count
from bkstore.durability.violations import CATEGORIES, Category, Violation, violations_table
from bkstore.former_names import with_former_members
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners
from bkstore.metrics import AUDIT_GAUGES, AUDIT_TIMERS
from bkstore.tables import Table

SkipReason = Literal["open", "in_recovery", "underreplicated", "gone"]
_SKIPS: tuple[SkipReason, ...] = get_args(SkipReason)

_SHORTAGES: dict[Category, str] = {
    "no_replica": "entries without any replica",
    "below_ack_quorum": "entries with fewer replicas than the ack quorum",
    "below_write_quorum": "entries with fewer replicas than the write quorum",
}
"""The durability categories in words, the worst first."""

_GAUGES: dict[str, Category] = dict(zip(AUDIT_GAUGES, CATEGORIES))


class Absence(NamedTuple):
    """How many ledgers and segments were checked without some bookie's entries, and why."""

    ledgers: int
    segments: int
    reason: str


def add_absence(absences: dict[str, Absence], bookie: str, added: Absence) -> None:
    """Add the counts of an absence to those of its bookie, and keep its reason."""
    ledgers, segments, _ = absences.get(bookie, (0, 0, ""))
    absences[bookie] = Absence(ledgers + added.ledgers, segments + added.segments, added.reason)


@dataclass(kw_only=True)
class AuditCounts:
    """The outcome of checks by ledger, for a batch or a whole run; counts are of ledgers.

    Each ledger is in `skipped` by reason, in `unreadable` (its metadata cannot be read or are
    inconsistent), in `unsettled` (its metadata changed during each attempt), or was `checked`. Of
    the checked, `empty` have no entries, and `unanswered` have unknown replicas: a bookie did not
    answer, and the store does not show whether that is a violation. `excused` counts, by bookie,
    ledgers on a bookie that is known to be unavailable. `absent` are bookies that are not in the
    audit's mapping: how many ledgers and segments were checked without each, and why that is a
    violation; `without` counts ledgers for which only such bookies gave no answer. `unlisted` are
    bookies that respond but cannot list entries. `replicas` counts answers of bookies, `redone`
    checks repeated because a ledger changed, `undated` marks without a time. `entries` counts the
    entries of the checked ledgers, and `answers` the answers of each bookie.
    """

    checked: int = 0
    empty: int = 0
    replicas: int = 0
    redone: int = 0
    undated: int = 0
    without: int = 0
    entries: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    absent: dict[str, Absence] = field(default_factory=dict)
    unlisted: dict[str, Absence] = field(default_factory=dict)
    unreadable: list[tuple[LedgerId, str]] = field(default_factory=list)
    unsettled: list[LedgerId] = field(default_factory=list)
    unanswered: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)

    def add_counts(self, other: AuditCounts) -> None:
        """Add the counts of other ledgers."""
        for field_name in NUMBER_FIELDS:
            setattr(self, field_name, getattr(self, field_name) + getattr(other, field_name))
        for field_name in COUNTER_FIELDS:
            getattr(self, field_name).update(getattr(other, field_name))
        for field_name in ABSENCE_FIELDS:
            for bookie, absence in getattr(other, field_name).items():
                add_absence(getattr(self, field_name), bookie, absence)
        self.unreadable += other.unreadable
        self.unsettled += other.unsettled
        self.unanswered.update(other.unanswered)


NUMBER_FIELDS = ("checked", "empty", "replicas", "redone", "undated", "without", "entries")
COUNTER_FIELDS = ("skipped", "seconds", "excused", "answers")
ABSENCE_FIELDS = ("absent", "unlisted")
"""Fields of `AuditCounts` by type: plain counts, counts by key, and absences by bookie."""


@with_former_members(looks="rechecks")
@dataclass
class AuditReport(AuditCounts):
    """The result of one run. `ledgers` counts those listed, or with `is_partial` those of them that
    were chosen; `rechecks` counts the rounds of rechecks. `owners` are those of the ledgers that it
    reports (`reported_ledgers`)."""

    started_at: float = 0.0
    ended_at: float | None = None
    ledgers: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    unchecked_rules: list[str] = field(default_factory=list)
    rechecks: int = 0
    is_partial: bool = False
    owners: LedgerOwners = field(default_factory=LedgerOwners, repr=False)

    @property
    def clean(self) -> bool:
        """Whether the run ended, without violations and without ledgers left unchecked."""
        unchecked = (self.unreadable, self.unsettled, self.unanswered, self.unlisted)
        return self.ended_at is not None and not self.violations and not any(unchecked)

    @property
    def checked_nothing(self) -> bool:
        """Whether no ledger was checked, or no bookie answered for any ledger with entries: such an
        audit has not passed, even if it is `clean`."""
        return not self.checked or (self.checked > self.empty and not self.replicas)

    @property
    def ledgers_by_outcome(self) -> dict[str, int]:
        """Number of ledgers by outcome: checked, skipped by reason, unreadable, unsettled."""
        skipped = {str(reason): self.skipped[reason] for reason in _SKIPS}
        unchecked = {"unreadable": len(self.unreadable), "unsettled": len(self.unsettled)}
        return {"checked": self.checked} | skipped | unchecked

    @property
    def stats(self) -> dict[str, float]:
        """Gauges and timers (milliseconds) under BookKeeper's names, scope replication/auditor."""
        gauges = {gauge: self.counts[category] for gauge, category in _GAUGES.items()}
        timers = {timer: round(self.seconds[timer] * 1000, 3) for timer in AUDIT_TIMERS}
        return {**gauges, **timers}

    def reported_ledgers(self) -> list[LedgerId]:
        """Return the ledgers that have a violation or could not be judged, in unsigned order."""
        reported = {violation.ledger for violation in self.violations if violation.ledger}
        return sorted({*reported, *self.unsettled, *(ledger for ledger, _ in self.unreadable)})

    def add(self, violations: list[Violation]) -> None:
        """Add all violations of one ledger, and count it once in each category. A ledger with a
        segment that fails the placement policy does not count as one that meets it softly."""
        categories = {violation.category for violation in violations}
        if "placement" in categories:
            categories.discard("placement_soft")
        self.counts.update(categories)
        self.violations += violations

    def table(self) -> Table:
        """Return the `violations` table."""
        return violations_table(self.violations)

    def finish(self, ended_at: float) -> None:
        """Set the end time, add a violation for each absent bookie, and sort the findings."""
        self.ended_at = ended_at
        for bookie, (ledgers, segments, reason) in self.absent.items():
            checked = f"{format_count(segments, 'segment')} of {_ledger_count(ledgers)}"
            detail = f"{reason}: {checked} judged without it"
            # of no ledger, so without first entry and missing entries
            violation = Violation("bookie_unavailable", None, None, bookie, None, detail)
            self.violations.append(violation)
        if self.without:  # ledgers for which only absent bookies gave no answer
            self.counts["bookie_unavailable"] += self.without
        self.violations.sort(key=lambda violation: violation.sort_key)
        self.unreadable.sort()
        self.unsettled.sort()
        self.unanswered = dict(sorted(self.unanswered.items()))

    def verdict(self) -> str:
        """Return the result in a sentence: whether replicas are missing, of how much, and whose."""
        # Something is missing: name the worst shortage, which comes first in `_SHORTAGES`.
        affected = self._affected_ledgers()
        if affected:
            worst = next(
                (text for category, text in _SHORTAGES.items() if self.counts[category]), ""
            )
            ledgers = f"{len(affected):,} of {_ledger_count(self.checked)}"
            ledgers += self._describe_owners(affected)
            return f"Replicas are missing of {ledgers}; at worst, {worst}"
        # Nothing was checked: why.
        if not self.ledgers:
            reason = "no ledger was chosen" if self.is_partial else "the metadata list no ledger"
            return f"Nothing was judged: {reason}"
        if not self.checked:
            skipped = self.skipped["open"] + self.skipped["in_recovery"]
            reason = "no ledger is closed" if skipped == self.ledgers else "see below"
            return f"Nothing was judged: {reason}"
        if self.checked_nothing:
            return "Nothing was judged: no bookie that should have entries answered"
        # Nothing is missing, of all or of a part.
        entries = format_count(self.entries, "entry", "entries", grouped=True)
        bookies = format_count(len(self.answers), "bookie", grouped=True)
        is_partial = not self.clean or self.excused or self.absent
        scope = " of what could be judged" if is_partial else ""
        return f"Nothing is missing{scope}: {_ledger_count(self.checked)}, {entries}, {bookies}"

    def _affected_ledgers(self) -> list[LedgerId]:
        """Return the ledgers of which replicas are missing, the worst first."""
        ranks = {category: rank for rank, category in enumerate(_SHORTAGES)}
        shortages = [each for each in self.violations if each.category in ranks and each.ledger]
        shortages.sort(key=lambda violation: ranks[violation.category])  # stable
        return list(dict.fromkeys(each.ledger for each in shortages if each.ledger))

    def _describe_owners(self, affected: list[LedgerId]) -> str:
        """Return the first owner of these ledgers and the number of others, in brackets; an empty
        text if none is known."""
        pairs = np.array([ledger.signed for ledger in affected], np.int64)  # scope, ledger
        # the distinct numbers of their owners, -1 for unknown ones, in order of appearance
        numbers = dict.fromkeys(self.owners.numbers_of(*pairs.T).tolist())
        owners = [self.owners.owners[number] for number in numbers if number >= 0]
        subjects = dict.fromkeys(filter(None, map(_owner_subject, owners)))
        if not subjects:
            return ""
        first, *others = subjects
        more = f" and {format_count(len(others), 'other', grouped=True)}" if others else ""
        return f" ({first}{more})"

    def _describe_ledger(self, ledger: LedgerId) -> str:
        owner = self.owners.get(ledger)
        subject = None if owner is None else _owner_subject(owner)
        return f"ledger {ledger}" if subject is None else f"ledger {ledger} ({subject})"

    def describe_unjudged(self) -> list[str]:
        """Return a line for each bookie and ledger that was not judged, or only in part."""
        lines = []
        if self.unanswered:
            silent_bookies = sorted({name for names in self.unanswered.values() for name in names})
            partly = _ledger_count(len(self.unanswered))
            lines.append(f"{partly} judged in part: no answer from {', '.join(silent_bookies)}")
        lines += [
            f"not judged: what {name} holds of {_ledger_count(absence.ledgers)}: {absence.reason}"
            for name, absence in sorted(self.unlisted.items())
        ]
        lines += [
            f"{_ledger_count(count)} judged in part: {name} is known to be unavailable"
            for name, count in sorted(self.excused.items())
        ]
        lines += [
            f"{self._describe_ledger(ledger)} not judged: {reason}"
            for ledger, reason in self.unreadable
        ]
        lines += [
            f"{self._describe_ledger(ledger)} not judged: it kept changing"
            for ledger in self.unsettled
        ]
        return lines

    def summary(self) -> list[str]:
        """Return lines that describe the run, the most important first."""
        counts, skipped = self.counts, self.skipped
        # Violations, then what was not judged, by cause, then the totals.
        lines = [self.verdict()]
        lines += [f"{name}: {_ledger_count(counts[name])}" for name in CATEGORIES if counts[name]]
        lines += [f"not judged: {reason}" for reason in self.unchecked_rules]
        lines += self.describe_unjudged()
        skips = ", ".join(f"{skipped[reason]} {reason}" for reason in _SKIPS if skipped[reason])
        ledgers = f"{self.checked} of {_ledger_count(self.ledgers)}"
        checked = f"{ledgers} checked ({self.empty} of them empty)"
        answers = f"{format_count(self.replicas, 'answer')} of bookies"
        return [*lines, f"{checked}, {answers}; skipped: {skips or 'none'}"]


def _owner_subject(owner: LedgerOwner) -> str | None:
    """Return the topic, also of a cursor's ledger, or the schema; None if neither is known."""
    return owner.topic or owner.subject


def _ledger_count(count: int) -> str:
    return format_count(count, "ledger", grouped=True)
