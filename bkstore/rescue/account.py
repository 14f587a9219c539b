"""The account of a rescue: what is whole, what is lost, and which copies of it were tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries
from bkstore.counts import format_count, join_words
from bkstore.ids import LedgerId
from bkstore.rescue.disks.sources import SourceBookie
from bkstore.rescue.ledger_plans import NOTHING, LedgerPlan
from bkstore.schedule import expected
from bkstore.tables import RESCUE, Table

RowKind = Literal["whole", "partial", "lost", "differing", "unverified", "unconfirmed", "end"]


@dataclass(frozen=True)
class AccountRow:
    """A statement on entries of one ledger.

    "whole" and "partial" state for each ledger how many entries are rescued. "lost": of these
    entries no copy can be read, `detail` says why for each bookie. "differing": copies whose
    digests match differ; the content of most of them was taken. "unverified": the digests of their
    only copies cannot be verified. "unconfirmed": entries after the end of a ledger that was not
    closed, which cannot have been acknowledged: left out. "end": entries after the end may have
    been acknowledged.
    """

    kind: RowKind
    ledger: LedgerId
    entries: Availability
    detail: str

    def to_row(self) -> tuple[Any, ...]:
        """Return the row of the table `RESCUE`."""
        entry_range = (self.entries.first_entry, self.entries.last_entry, len(self.entries))
        return (
            self.kind,
            *self.ledger.signed,
            *entry_range,
            self.detail,
            self.entries.groups.tolist(),
        )


class _LostPart(NamedTuple):
    """Some lost entries, and for each bookie considered so far the reason why it has no copy."""

    entries: Availability
    reasons: tuple[str, ...]


def account_rows(
    plans: Mapping[LedgerId, LedgerPlan], bookies: Collection[SourceBookie]
) -> Iterator[AccountRow]:
    """Yield the rows of each ledger, in the order of ids."""
    by_id = {bookie.bookie_id: bookie for bookie in bookies}
    for ledger_id in sorted(plans):
        yield from _ledger_rows(ledger_id, plans[ledger_id], by_id)


def _ledger_rows(
    ledger_id: LedgerId, plan: LedgerPlan, bookies: Mapping[str, SourceBookie]
) -> Iterator[AccountRow]:
    kind: RowKind = "whole" if plan.is_whole else "partial"
    yield AccountRow(kind, ledger_id, plan.rescued, _describe_ledger(plan))
    for entries, reason in explain_losses(plan, bookies):
        yield AccountRow("lost", ledger_id, entries, reason)
    if plan.differing:
        detail = "copies with valid digests differ; what most of them say was taken"
        yield AccountRow("differing", ledger_id, plan.differing, detail)
    if plan.unverified:
        detail = "the digest type or password is unknown; taken unverified"
        yield AccountRow("unverified", ledger_id, plan.unverified, detail)
    if plan.unconfirmed:
        detail = "after the end of the ledger, never acknowledged: left out"
        yield AccountRow("unconfirmed", ledger_id, plan.unconfirmed, detail)
    if not plan.is_end_certain:
        detail = (
            f"entries after {plan.last_entry} may have been acknowledged: too few disks of its "
            "last ensemble are here and undamaged"
        )
        yield AccountRow("end", ledger_id, NOTHING, detail)


def _describe_ledger(plan: LedgerPlan) -> str:
    """Return how much of a ledger is rescued, and if the rescue decided where it ends."""
    entries = format_count(plan.last_entry + 1, "entry", "entries")
    text = f"all of {entries}" if not plan.lost else f"{len(plan.rescued)} of {entries}"
    if not plan.metadata.closed:
        text += f"; was {plan.metadata.state}, closed at entry {plan.last_entry}"
    return text


def explain_losses(
    plan: LedgerPlan, bookies: Mapping[str, SourceBookie]
) -> Iterator[tuple[Availability, str]]:
    """Yield (entries, reason) of the entries without a readable copy, in the order of the segments.
    A reason names each bookie of the write set, and what its disk has."""
    lost, metadata = plan.lost, plan.metadata
    starts = [segment.first_entry for segment in metadata.segments]
    for segment, next_start in zip(metadata.segments, [*starts[1:], plan.last_entry + 1]):
        first, last = segment.first_entry, min(next_start - 1, plan.last_entry)
        if last < first:
            continue
        # Split the segment's lost entries again by each bookie, so that all of a part have the same
        # reasons.
        parts = [_LostPart(lost & Availability.from_ranges([(first, last)]), reasons=())]
        for index, bookie_id in enumerate(segment.ensemble):
            sizes = (metadata.ensemble_size, metadata.write_quorum_size)
            expected_entries = expected(first, last, index, *sizes)
            damaged, bookie = plan.damaged.get(bookie_id, NOTHING), bookies.get(bookie_id)
            parts = list(_split_by_bookie(parts, expected_entries, damaged, bookie_id, bookie))
        for entries, reasons in parts:
            yield entries, "; ".join(reasons)


def _split_by_bookie(
    parts: list[_LostPart],
    expected_entries: Availability,
    damaged: Availability,
    bookie_id: str,
    bookie: SourceBookie | None,
) -> Iterator[_LostPart]:
    """Split each part by what one bookie has of its entries (a damaged copy, none though it should
    have one, none as expected), and add a reason in the first two cases."""
    for entries, reasons in parts:
        damaged_entries = entries & damaged
        absent_entries = (entries & expected_entries) - damaged
        for subset, status in (
            (damaged_entries, "its copy is damaged"),
            (absent_entries, _describe_absence(bookie)),
        ):
            if subset:
                yield _LostPart(subset, (*reasons, f"{bookie_id}: {status}"))
        others = entries - damaged_entries - absent_entries
        if others:
            yield _LostPart(others, reasons)


def _describe_absence(bookie: SourceBookie | None) -> str:
    if bookie is None:
        return "no directory was given"
    if bookie.directory is None:
        return "its disk cannot be read"
    if bookie.may_hide_records:
        return "no copy, and parts of its disks are missing or unreadable"
    return "no copy"


def account_tables(rows: Iterator[AccountRow], rows_per_table: int = 1000) -> Iterator[Table]:
    """Yield rows as tables of bounded size."""
    pending: list[tuple[Any, ...]] = []
    for row in rows:
        pending.append(row.to_row())
        if len(pending) >= rows_per_table:
            yield Table.from_rows(RESCUE, pending)
            pending = []
    if pending:
        yield Table.from_rows(RESCUE, pending)


def summarize(plans: Mapping[LedgerId, LedgerPlan]) -> str:
    """Return one line on all ledgers."""
    whole = sum(plan.is_whole for plan in plans.values())
    rescued = sum(len(plan.rescued) for plan in plans.values())
    lost = {ledger_id: len(plan.lost) for ledger_id, plan in plans.items() if plan.lost}
    text = f"{format_count(rescued, 'entry', 'entries')} of {format_count(len(plans), 'ledger')}"
    text += f" rescued, {whole} of them whole"
    if lost:
        worst = max(lost, key=lost.__getitem__)
        lost_text = format_entries(plans[worst].lost)
        text += f"; lost: {format_count(sum(lost.values()), 'entry', 'entries')}"
        text += f" of {format_count(len(lost), 'ledger')}, most of ledger {worst}: {lost_text}"
    uncertain = [str(ledger) for ledger, plan in plans.items() if not plan.is_end_certain]
    if uncertain:
        text += f"; uncertain ends: {join_words(uncertain[:5])}"
    return text
