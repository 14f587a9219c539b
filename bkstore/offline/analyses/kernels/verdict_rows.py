"""Rows about judged ledgers: tables `violations`, `ledger_health`, `surplus`, `homeless`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal

from bkstore.durability.violations import categorize_shortage, durability_violations
from bkstore.offline.analyses.kernels.ledger_verdicts import LedgerVerdict
from bkstore.tables import HEALTH, HOMELESS, SURPLUS, VIOLATIONS, Schema

Output = Literal["violations", "ledger_health", "surplus", "homeless"]
Row = tuple[Any, ...]


def _id_cells(verdict: LedgerVerdict) -> Row:
    return (*verdict.ledger.signed, verdict.ledger.qualified_name)


def _violation_rows(verdict: LedgerVerdict) -> Iterator[Row]:
    """Yield a row per violation of the ledger; none if no replica is missing."""
    if verdict.worst_shortage is None:
        return
    facts = verdict.facts
    missing = sorted(verdict.missing_replicas, key=lambda lack: (lack.first_entry, lack.bookie))
    for violation in durability_violations(
        verdict.ledger, missing, verdict.worst_shortage, facts.write_quorum, facts.ack_quorum
    ):
        yield violation.cells()


def _health_rows(verdict: LedgerVerdict) -> Iterator[Row]:
    """Yield the row of a ledger; it ends with the reason why not all of the ledger was judged."""
    facts = verdict.facts
    verdict_cells: Row = (None,) * 6  # null if the ledger is not judged
    reason = facts.skip_reason
    if reason is None:
        worst, quorum, category = verdict.worst_shortage, facts.write_quorum, None
        fewest_replicas = quorum if verdict.expected_count else None
        if worst is not None:
            fewest_replicas = quorum - worst.missing
            category = categorize_shortage(fewest_replicas, quorum, facts.ack_quorum)
        surplus_count = sum(len(entries) for _, entries in verdict.surplus)
        counts = (verdict.expected_count, verdict.missing_count, surplus_count)
        verdict_cells = (*counts, fewest_replicas, verdict.lost_count, category)
        reason = _unjudged_reason(verdict)
    yield (
        *_id_cells(verdict),
        facts.state,
        facts.ensemble_size,
        facts.write_quorum,
        facts.ack_quorum,
        len(facts.segments),
        facts.last_entry,
        *verdict_cells,
        reason,
    )


def _unjudged_reason(verdict: LedgerVerdict) -> str | None:
    """Return the reason why part of the ledger was not judged, or None."""
    reasons = []
    if verdict.undumped_bookies:
        reasons.append(f"bookies not in the dump: {' '.join(sorted(verdict.undumped_bookies))}")
    if verdict.unread_bookies:
        reasons.append(f"could not be read on: {' '.join(sorted(verdict.unread_bookies))}")
    return "; ".join(reasons) or None


def _surplus_rows(verdict: LedgerVerdict) -> Iterator[Row]:
    """Yield a row per bookie with entries that are not expected on it."""
    for bookie, entries in sorted(verdict.surplus, key=itemgetter(0)):
        yield bookie, *_id_cells(verdict), len(entries), entries.groups


def _homeless_rows(verdict: LedgerVerdict) -> Iterator[Row]:
    """Yield a row if entries are expected, and no bookie of the dump has any."""
    if verdict.expected_count and not verdict.has_entries and not verdict.unread_bookies:
        facts = verdict.facts
        bookies = {bookie for _, ensemble in facts.segments for bookie in ensemble}
        yield *_id_cells(verdict), facts.state, facts.last_entry, " ".join(sorted(bookies))


OUTPUTS: Mapping[str, tuple[Schema, Callable[[LedgerVerdict], Iterator[Row]]]] = MappingProxyType(
    {
        "violations": (VIOLATIONS, _violation_rows),
        "ledger_health": (HEALTH, _health_rows),
        "surplus": (SURPLUS, _surplus_rows),
        "homeless": (HOMELESS, _homeless_rows),
    }
)
"""By analysis: its schema, and the function that yields a ledger's rows."""
