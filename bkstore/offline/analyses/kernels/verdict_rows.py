"""What is told of judged ledgers: `violations`, `ledger_health`, `surplus`, `homeless`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from bkstore.durability import category_of, durability_violations
from bkstore.offline.analyses.kernels.judged_ledgers import Subject
from bkstore.tables import HEALTH, HOMELESS, SURPLUS, VIOLATIONS, Schema

Output = Literal["violations", "ledger_health", "surplus", "homeless"]
Row = tuple[Any, ...]


def _ids(subject: Subject) -> Row:
    """Return its id columns."""
    return (*subject.ledger.signed, subject.ledger.qualified_name)


def _violations(subject: Subject) -> Iterator[Row]:
    if subject.worst is None:
        return
    said = subject.said
    lacks = sorted(subject.lacks, key=lambda each: (each.first_entry, each.bookie))
    for each in durability_violations(
        subject.ledger, lacks, subject.worst, said.write_quorum, said.ack_quorum
    ):
        yield each.cells()


def _health(subject: Subject) -> Iterator[Row]:
    said = subject.said
    counts: Row = (None,) * 5
    reason = said.skip
    if reason is None:
        worst, quorum, category = subject.worst, said.write_quorum, None
        fewest = quorum if subject.due else None
        if worst is not None:
            fewest = quorum - worst.missing
            category = category_of(fewest, quorum, said.ack_quorum)
        extra = sum(len(found) for _, found in subject.surplus)
        counts = (subject.due, subject.missing, extra, fewest, category)
        reason = _unjudged(subject)
    yield (
        *_ids(subject),
        said.state,
        said.ensemble_size,
        said.write_quorum,
        said.ack_quorum,
        len(said.segments),
        said.last_entry,
        *counts,
        reason,
    )


def _unjudged(subject: Subject) -> str | None:
    parts = []
    if subject.absent:
        parts.append(f"bookies not in the dump: {' '.join(sorted(subject.absent))}")
    if subject.unread:
        parts.append(f"could not be read at: {' '.join(sorted(subject.unread))}")
    return "; ".join(parts) or None


def _surplus(subject: Subject) -> Iterator[Row]:
    for bookie, found in sorted(subject.surplus, key=lambda each: each[0]):
        yield bookie, *_ids(subject), len(found), found.groups


def _homeless(subject: Subject) -> Iterator[Row]:
    if subject.due and not subject.held and not subject.unread:
        said = subject.said
        bookies = " ".join(sorted({name for _, who in said.segments for name in who}))
        yield *_ids(subject), said.state, said.last_entry, bookies


OUTPUTS: Mapping[str, tuple[Schema, Callable[[Subject], Iterator[Row]]]] = MappingProxyType(
    {
        "violations": (VIOLATIONS, _violations),
        "ledger_health": (HEALTH, _health),
        "surplus": (SURPLUS, _surplus),
        "homeless": (HOMELESS, _homeless),
    }
)
"""By analysis: its table, and the rows of it that a ledger has."""
