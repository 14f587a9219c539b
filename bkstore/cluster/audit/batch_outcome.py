"""Outcome: the verdicts on one batch of ledgers, which can be serialized and added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.audit.report import (
    ABSENCE_FIELDS,
    COUNTER_FIELDS,
    NUMBER_FIELDS,
    Absence,
    AuditCounts,
)
from bkstore.durability.violations import CATEGORIES, Violation
from bkstore.ids import LedgerId, check_entry_id


@dataclass
class BatchOutcome(AuditCounts):
    """The verdicts on a batch; `to_recheck` are ledgers without one, to be checked again."""

    violations: dict[LedgerId, list[Violation]] = field(default_factory=dict)
    to_recheck: list[LedgerId] = field(default_factory=list)

    def merge(self, other: BatchOutcome) -> None:
        """Add the outcome of other ledgers."""
        self.add_counts(other)
        self.violations.update(other.violations)
        self.to_recheck += other.to_recheck

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain values, for `from_json`."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in NUMBER_FIELDS}
        plain |= {name: dict(getattr(self, name)) for name in COUNTER_FIELDS}
        for name in ABSENCE_FIELDS:
            plain[name] = {bookie: list(absence) for bookie, absence in getattr(self, name).items()}
        return plain | {
            "found": list(map(_violation_to_json, chain.from_iterable(self.violations.values()))),
            "unreadable": [[ledger.qualified_name, reason] for ledger, reason in self.unreadable],
            "unsettled": [ledger.qualified_name for ledger in self.unsettled],
            "unanswered": {
                ledger.qualified_name: list(bookies) for ledger, bookies in self.unanswered.items()
            },
            "again": [ledger.qualified_name for ledger in self.to_recheck],
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> BatchOutcome:
        """Return the outcome of values from `to_json`; others raise `KeyError`, `TypeError`,
        `AttributeError` or `ValueError` (as `InvalidArgument` and `CorruptionError` are)."""
        # The keys are of the first version: "found" has violations, "again" ledgers to recheck.
        counts: dict[str, Any] = {name: int(_check_number(plain[name])) for name in NUMBER_FIELDS}
        outcome = cls(**counts)
        for name in COUNTER_FIELDS:
            for key, count in plain[name].items():
                getattr(outcome, name)[_check_text(key)] = _check_number(count)
        for ledger_text, *fields in plain["found"]:
            ledger = _parse_ledger_id(ledger_text)
            outcome.violations.setdefault(ledger, []).append(_violation_from_json(ledger, *fields))
        for name in ABSENCE_FIELDS:
            for bookie, absence in plain[name].items():
                getattr(outcome, name)[_check_text(bookie)] = _absence_from_json(*absence)
        outcome.unreadable = [
            (_parse_ledger_id(text), _check_text(reason)) for text, reason in plain["unreadable"]
        ]
        outcome.unsettled = list(map(_parse_ledger_id, plain["unsettled"]))
        outcome.unanswered = {
            _parse_ledger_id(text): tuple(map(_check_text, bookies))
            for text, bookies in plain["unanswered"].items()
        }
        outcome.to_recheck = list(map(_parse_ledger_id, plain["again"]))
        return outcome


def _violation_to_json(violation: Violation) -> list[Any]:
    """Return a violation as a row of a saved batch; the reader takes the same order."""
    category, ledger, first_entry, bookie, missing, detail = violation
    groups = None if missing is None else missing.groups.tolist()
    ledger_name = None if ledger is None else ledger.qualified_name
    return [ledger_name, category, first_entry, bookie, groups, detail]


def _violation_from_json(
    ledger: LedgerId, category: Any, first: Any, bookie: Any, groups: Any, detail: Any
) -> Violation:
    """Return the violation of a JSON row, whose values are in the order of `_violation_to_json`."""
    if category not in CATEGORIES:
        raise ValueError(f"not a category: {category!r:.80}")
    return Violation(
        category,
        ledger,
        None if first is None else check_entry_id(int(_check_number(first))),
        None if bookie is None else _check_text(bookie),
        None if groups is None else Availability.from_groups(groups),
        _check_text(detail),
    )


def _absence_from_json(ledgers: Any, segments: Any, reason: Any) -> Absence:
    return Absence(int(_check_number(ledgers)), int(_check_number(segments)), _check_text(reason))


def _parse_ledger_id(value: Any) -> LedgerId:
    return LedgerId.parse(_check_text(value))


def _check_text(value: Any) -> str:
    """Return a string; raises if it is none, or has surrogates other than escaped bytes."""
    if not isinstance(value, str):
        raise TypeError(f"not a string: {value!r:.80}")
    value.encode("utf-8", "surrogateescape")
    return value


def _check_number(value: Any) -> float:
    """Return a count or a time; raises if it is negative or no number."""
    if type(value) not in (int, float) or not 0 <= value < 1 << 63:
        raise ValueError(f"not a count: {value!r:.80}")
    number: float = value
    return number
