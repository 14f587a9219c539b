"""What an audit found: violations, counts by category over the whole run, and what was skipped.

Categories and stats: BP-34; names of stats: `replication/AuditorStats` (reference page of the
`audit` command: `docs/auditing.md`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bkstore.availability import Availability
from bkstore.counts import counted
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, LedgerId
from bkstore.metrics import AUDIT_GAUGES, AUDIT_TIMERS
from bkstore.tables import VIOLATIONS, Table

Category = Literal[
    "no_replica",
    "below_ack_quorum",
    "below_write_quorum",
    "placement",
    "placement_soft",
    "overdue",
    "bookie_unavailable",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
DURABILITY: tuple[Category, ...] = CATEGORIES[:3]

Skip = Literal["open", "in_recovery", "underreplicated", "gone"]
_SKIPS: tuple[Skip, ...] = get_args(Skip)

MOST_RANGES = 10_000
"""Ranges that a table row lists; of more, the row has the groups only."""

_GAUGES: dict[str, Category] = dict(zip(AUDIT_GAUGES, CATEGORIES))


class Violation(NamedTuple):
    """One violation, in full.

    `first_entry` is the segment's, `bookie` whose replica is concerned; None where the ledger as
    a whole is meant. `ledger` is None for a bookie of which nothing is known, whatever the
    ledger. `missing` are the segment's entries that the bookie should hold and does not, empty
    where entries are not the matter, None where a bookie gave no answer about them.
    """

    category: Category
    ledger: LedgerId | None
    first_entry: int | None = None
    bookie: str | None = None
    missing: Availability | None = Availability()
    detail: str = ""

    @property
    def order(self) -> tuple[bool, LedgerId, int, str, str]:
        """What reports are sorted by: ledger (unsigned; none first), segment, category, bookie."""
        first = -1 if self.first_entry is None else self.first_entry
        ledger = self.ledger or LedgerId(0, 0)
        return self.ledger is not None, ledger, first, self.category, self.bookie or ""

    def row(self) -> tuple[Any, ...]:
        """Return the row of the `violations` table, of plain values."""
        cells = self.cells()
        return tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in cells)

    def cells(self) -> tuple[Any, ...]:
        """Return the same with ranges and groups as int64[n, 2] and int64[n, 4]."""
        ids: tuple[Any, ...] = (None, None, None)
        if self.ledger is not None:
            ids = (*self.ledger.signed, self.ledger.qualified_name)
        place = (self.first_entry, self.bookie)
        return self.category, *ids, *place, *_missing(self.missing), self.detail


def _missing(
    entries: Availability | None,
) -> tuple[int | None, Int64Array | None, Int64Array | None]:
    """Return how many entries, their ranges unless they are too many, and their groups."""
    if entries is None:
        return None, None, None
    groups = entries.groups
    few = int(((groups[:, 1] - groups[:, 0]) // groups[:, 3].clip(1) + 1).sum()) <= MOST_RANGES
    return len(entries), entries.ranges() if few else None, groups


def violations_table(violations: Iterable[Violation]) -> Table:
    """Return the `violations` table of some violations."""
    return Table.from_rows(VIOLATIONS, (each.row() for each in violations))


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


@dataclass
class AuditReport:
    """What one run saw. Counts are of ledgers, over the whole run.

    `ledgers` were listed; each is either in `skipped` by reason, in `unreadable` (its metadata
    cannot be read or contradicts itself), in `unsettled` (its metadata changed faster than it
    could be judged), or was `checked`. Of checked ledgers `empty` hold no entry, and those in
    `unanswered` have replicas of which nothing is known, as a bookie gave no answer and the store
    does not tell whether that is a violation; `excused` counts those that lie on a bookie which is
    known to be unavailable. `absent` are bookies that nobody answers for: how many ledgers and
    segments were judged without each, and why that is a violation; `without` counts the ledgers
    of which such a bookie is the only one without an answer. `unlisted` are bookies that are there
    and list no entries: what was judged without each, and why. `replicas` are answers of bookies,
    `redone` judgements begun anew because a ledger changed, `undated` marks without a time,
    `looks` later looks that were taken.
    """

    started_at: float = 0.0
    ended_at: float | None = None
    ledgers: int = 0
    checked: int = 0
    empty: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    unreadable: list[tuple[LedgerId, str]] = field(default_factory=list)
    unsettled: list[LedgerId] = field(default_factory=list)
    unanswered: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)
    not_judged: list[str] = field(default_factory=list)
    replicas: int = 0
    redone: int = 0
    undated: int = 0
    looks: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    absent: dict[str, Absence] = field(default_factory=dict)
    unlisted: dict[str, Absence] = field(default_factory=dict)
    without: int = 0
    seconds: Counter[str] = field(default_factory=Counter)

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


def category_of(replicas: int, write_quorum: int, ack_quorum: int) -> Category:
    """Return the category of a ledger whose worst entry has `replicas` of W replicas.

    >>> [category_of(left, 3, 2) for left in (0, 1, 2)]
    ['no_replica', 'below_ack_quorum', 'below_write_quorum']
    """
    if not 0 <= replicas < write_quorum:
        raise InvalidArgument(f"{replicas} of {write_quorum} replicas are no shortage")
    if replicas == 0:
        return "no_replica"
    return "below_ack_quorum" if replicas < ack_quorum else "below_write_quorum"
