"""Outcome: what one batch of ledgers came to, as a value that can be kept and added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster.audit.report import ABSENCES, COUNTERS, NUMBERS, Absence, AuditCounts
from bkstore.durability import CATEGORIES, Violation
from bkstore.ids import LedgerId, check_entry_id


@dataclass
class Outcome(AuditCounts):
    """The verdicts on a batch; `again` are ledgers to be looked at once more, not judged yet."""

    found: dict[LedgerId, list[Violation]] = field(default_factory=dict)
    again: list[LedgerId] = field(default_factory=list)

    def merge(self, other: Outcome) -> None:
        """Add another outcome, of other ledgers."""
        self.add_counts(other)
        self.found.update(other.found)
        self.again += other.again

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` makes the same outcome of."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        plain |= {name: dict(getattr(self, name)) for name in COUNTERS}
        for of in ABSENCES:
            plain[of] = {name: list(absence) for name, absence in getattr(self, of).items()}
        return plain | {
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
        """Return the outcome that `to_json` wrote.

        Raises `KeyError`, `TypeError`, `AttributeError` or `ValueError` (of which
        `InvalidArgument` and `CorruptionError` are) for anything else.
        """
        numbers: dict[str, Any] = {name: int(_number(plain[name])) for name in NUMBERS}
        made = cls(**numbers)
        for name in COUNTERS:
            counts = {_text(key): _number(count) for key, count in plain[name].items()}
            getattr(made, name).update(counts)
        for each in plain["found"]:
            name, *rest = each
            ledger = _ledger(name)
            made.found.setdefault(ledger, []).append(_violation(ledger, *rest))
        for of in ABSENCES:
            setattr(made, of, {_text(name): _absence(*kept) for name, kept in plain[of].items()})
        made.unreadable = [(_ledger(name), _text(why)) for name, why in plain["unreadable"]]
        made.unsettled = [_ledger(name) for name in plain["unsettled"]]
        made.unanswered = {
            _ledger(name): tuple(map(_text, names)) for name, names in plain["unanswered"].items()
        }
        made.again = [_ledger(name) for name in plain["again"]]
        return made


def _plain(each: Violation) -> list[Any]:
    groups = None if each.missing is None else each.missing.groups.tolist()
    name = None if each.ledger is None else each.ledger.qualified_name
    return [name, each.category, each.first_entry, each.bookie, groups, each.detail]


def _violation(
    ledger: LedgerId, category: Any, first: Any, bookie: Any, groups: Any, detail: Any
) -> Violation:
    if category not in CATEGORIES:
        raise ValueError(f"no category: {category!r:.80}")
    return Violation(
        category,
        ledger,
        None if first is None else check_entry_id(int(_number(first))),
        None if bookie is None else _text(bookie),
        None if groups is None else Availability.from_groups(groups),
        _text(detail),
    )


def _absence(ledgers: Any, segments: Any, reason: Any) -> Absence:
    return Absence(int(_number(ledgers)), int(_number(segments)), _text(reason))


def _ledger(value: Any) -> LedgerId:
    return LedgerId.parse(_text(value))


def _text(value: Any) -> str:
    """Return a text that can be shown; of surrogates those only that stand for a name's bytes."""
    if not isinstance(value, str):
        raise TypeError(f"no text: {value!r:.80}")
    value.encode("utf-8", "surrogateescape")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1 << 63:
        raise ValueError(f"no count: {value!r:.80}")
    number: float = value
    return number
