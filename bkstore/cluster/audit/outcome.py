"""Outcome: what one batch of ledgers came to, as a value that can be kept and added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.audit.report import Absence, AuditReport, Violation
from bkstore.ids import LedgerId

__all__ = ["Outcome"]


@dataclass
class Outcome:
    """The verdicts on a batch; `again` are ledgers to be looked at once more, not judged yet."""

    checked: int = 0
    empty: int = 0
    replicas: int = 0
    redone: int = 0
    undated: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    absent: dict[str, Absence] = field(default_factory=dict)
    without: int = 0
    found: dict[LedgerId, list[Violation]] = field(default_factory=dict)
    unreadable: list[tuple[LedgerId, str]] = field(default_factory=list)
    unsettled: list[LedgerId] = field(default_factory=list)
    unanswered: dict[LedgerId, tuple[str, ...]] = field(default_factory=dict)
    again: list[LedgerId] = field(default_factory=list)

    def merge(self, other: Outcome) -> None:
        """Add another outcome, of other ledgers."""
        self._count_into(other, self)
        self.found.update(other.found)
        self.again += other.again

    def add_to(self, report: AuditReport) -> None:
        """Add everything but `again` to a report."""
        self._count_into(self, report)
        for violations in self.found.values():
            report.add(violations)

    @staticmethod
    def _count_into(given: Outcome, into: Outcome | AuditReport) -> None:
        for name in _NUMBERS:
            setattr(into, name, getattr(into, name) + getattr(given, name))
        for name in _COUNTERS:
            getattr(into, name).update(getattr(given, name))
        for name, absence in given.absent.items():
            into.absent[name] = into.absent[name] + absence if name in into.absent else absence
        into.unreadable += given.unreadable
        into.unsettled += given.unsettled
        into.unanswered.update(given.unanswered)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` makes the same outcome of."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        plain |= {name: dict(getattr(self, name)) for name in _COUNTERS}
        return plain | {
            "absent": {name: list(absence) for name, absence in self.absent.items()},
            "found": [_plain(each) for violations in self.found.values() for each in violations],
            "unreadable": [[ledger.qualified_name, why] for ledger, why in self.unreadable],
            "unsettled": [ledger.qualified_name for ledger in self.unsettled],
            "unanswered": {
                ledger.qualified_name: list(names) for ledger, names in self.unanswered.items()
            },
            "again": [ledger.qualified_name for ledger in self.again],
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Outcome:
        """Return the outcome that `to_json` wrote."""
        made = cls(**{name: plain[name] for name in _NUMBERS})
        for name in _COUNTERS:
            getattr(made, name).update(plain[name])
        for name, category, first, bookie, groups, detail in plain["found"]:
            ledger = LedgerId.parse(name)
            missing = None if groups is None else Availability.from_groups(groups)
            violation = Violation(category, ledger, first, bookie, missing, detail)
            made.found.setdefault(ledger, []).append(violation)
        made.absent = {name: Absence(*kept) for name, kept in plain["absent"].items()}
        made.unreadable = [(LedgerId.parse(name), why) for name, why in plain["unreadable"]]
        made.unsettled = [LedgerId.parse(name) for name in plain["unsettled"]]
        made.unanswered = {
            LedgerId.parse(name): tuple(names) for name, names in plain["unanswered"].items()
        }
        made.again = [LedgerId.parse(name) for name in plain["again"]]
        return made


def _plain(each: Violation) -> list[Any]:
    groups = None if each.missing is None else each.missing.groups.tolist()
    name = None if each.ledger is None else each.ledger.qualified_name
    return [name, each.category, each.first_entry, each.bookie, groups, each.detail]


_NUMBERS = ("checked", "empty", "replicas", "redone", "undated", "without")
_COUNTERS = ("skipped", "seconds", "excused")
