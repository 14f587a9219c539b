"""Rows about judged ledgers: tables `violations`, `ledger_health`, `surplus`, `homeless`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from bkstore.durability import categorize_shortage, durability_violations
from bkstore.offline.analyses.kernels.ledger_verdicts import Subject
from bkstore.tables import HEALTH, HOMELESS, SURPLUS, VIOLATIONS, Schema

Output = Literal["violations", "ledger_health", "surplus", "homeless"]
Row = tuple[Any, ...]


def _id_cells(subject: Subject) -> Row:
    return (*subject.ledger.signed, subject.ledger.qualified_name)


def _violation_rows(subject: Subject) -> Iterator[Row]:
    if subject.worst is None:
        return
    facts = subject.said
    lacks = sorted(subject.lacks, key=lambda violation: (violation.first_entry, violation.bookie))
    for violation in durability_violations(
        subject.ledger, lacks, subject.worst, facts.write_quorum, facts.ack_quorum
    ):
        yield violation.cells()


def _health_rows(subject: Subject) -> Iterator[Row]:
    facts = subject.said
    counts: Row = (None,) * 5
    reason = facts.skip
    if reason is None:
        worst, quorum, category = subject.worst, facts.write_quorum, None
        fewest = quorum if subject.due else None
        if worst is not None:
            fewest = quorum - worst.missing
            category = categorize_shortage(fewest, quorum, facts.ack_quorum)
        surplus_count = sum(len(entries) for _, entries in subject.surplus)
        counts = (subject.due, subject.missing, surplus_count, fewest, category)
        reason = _unjudged_reason(subject)
    yield (
        *_id_cells(subject),
        facts.state,
        facts.ensemble_size,
        facts.write_quorum,
        facts.ack_quorum,
        len(facts.segments),
        facts.last_entry,
        *counts,
        reason,
    )


def _unjudged_reason(subject: Subject) -> str | None:
    """Return the reason why part of the ledger was not judged, or None."""
    reasons = []
    if subject.absent:
        reasons.append(f"bookies not in the dump: {' '.join(sorted(subject.absent))}")
    if subject.unread:
        reasons.append(f"could not be read on: {' '.join(sorted(subject.unread))}")
    return "; ".join(reasons) or None


def _surplus_rows(subject: Subject) -> Iterator[Row]:
    for bookie, entries in sorted(subject.surplus, key=lambda pair: pair[0]):
        yield bookie, *_id_cells(subject), len(entries), entries.groups


def _homeless_rows(subject: Subject) -> Iterator[Row]:
    if subject.due and not subject.held and not subject.unread:
        facts = subject.said
        bookies = " ".join(
            sorted({bookie for _, ensemble in facts.segments for bookie in ensemble})
        )
        yield *_id_cells(subject), facts.state, facts.last_entry, bookies


OUTPUTS: Mapping[str, tuple[Schema, Callable[[Subject], Iterator[Row]]]] = MappingProxyType(
    {
        "violations": (VIOLATIONS, _violation_rows),
        "ledger_health": (HEALTH, _health_rows),
        "surplus": (SURPLUS, _surplus_rows),
        "homeless": (HOMELESS, _homeless_rows),
    }
)
"""By analysis: its schema, and the function that yields a ledger's rows."""
