"""LedgerPlans: where each ledger ends, which entries can be rescued, and which are lost.

Made from the surveyed copies in one pass, without reading a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bkstore.availability import Availability
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.spilled_rows.sorted_runs import RUN_ROWS, read_pieces
from bkstore.rescue.copy_choice import find_differing, order_by_choice, rank_class
from bkstore.rescue.disks.copies import UNVERIFIED, Copies, sort_rows, split_by_ledger
from bkstore.rescue.disks.survey import SurveyedCopies
from bkstore.rescue.ledger_end import find_ledger_end

NOTHING = Availability.from_entries(())
"""No entry."""


@dataclass
class LedgerPlan:
    """One ledger: its metadata and end, and sets of its entries.

    `readable` entries have a copy that can be used; `differing` ones have several copies of one
    class with different contents; `unverified` ones have only copies whose digests cannot be
    verified, though the ledger has digests. `damaged` are, for each bookie, the entries of which it
    has only damaged copies, and no bookie a readable one. `unconfirmed` are readable entries after
    the end. `unread` turned out to be unreadable later.
    """

    metadata: LedgerMetadata
    last_entry: int = -1
    is_end_certain: bool = True
    readable: Availability = NOTHING
    differing: Availability = NOTHING
    unverified: Availability = NOTHING
    unconfirmed: Availability = NOTHING
    damaged: dict[str, Availability] = field(default_factory=dict)
    unread: Availability = NOTHING

    @property
    def expected(self) -> Availability:
        """All entries of the ledger, up to its end."""
        return Availability.from_ranges([(0, self.last_entry)]) if self.last_entry >= 0 else NOTHING

    @property
    def rescued(self) -> Availability:
        """The entries that are rescued."""
        return self.readable - self.unread

    @property
    def lost(self) -> Availability:
        """The entries of the ledger of which no copy can be read."""
        return self.expected - self.rescued

    @property
    def is_whole(self) -> bool:
        """Whether all of its entries are rescued, and it is certain which these are."""
        return self.is_end_certain and not self.lost


@dataclass
class _OpenLedger:
    """What decides the end of a ledger that is not closed: the highest LAC, and for each bookie the
    entries after it of which the bookie has a copy."""

    lac: int
    copies: dict[str, Availability] = field(default_factory=dict)


def plan_ledgers(
    ledgers: Mapping[LedgerId, LedgerMetadata],
    surveyed: SurveyedCopies,
    bookie_ids: Sequence[str],
    reliable: Collection[str],
    verifiable: Collection[LedgerId],
) -> dict[LedgerId, LedgerPlan]:
    """Return the plan of each ledger. `bookie_ids` are the bookies by their number, `reliable`
    those whose disks were read without damage, `verifiable` the ledgers that have digests.

    Cost: about 1 us a copy. Memory: a piece of rows, and the sequence groups of each ledger.
    """
    plans = {ledger_id: LedgerPlan(metadata) for ledger_id, metadata in ledgers.items()}
    open_ledgers = {
        ledger_id: _OpenLedger(surveyed.lacs.get(ledger_id, -1))
        for ledger_id, metadata in ledgers.items()
        if not metadata.closed
    }
    bookie_of_file = np.array([source.bookie for source in surveyed.files], np.int64)
    for copies in read_copies(surveyed):
        plan = plans[copies.ledger_id]
        bookie_numbers = bookie_of_file[copies.file_number]
        _add_copies(plan, copies, bookie_numbers, bookie_ids, copies.ledger_id in verifiable)
        if (open_ledger := open_ledgers.get(copies.ledger_id)) is not None:
            is_later = copies.entry_id > open_ledger.lac
            later, numbers = copies.where(is_later), bookie_numbers[is_later]
            _add_by_bookie(open_ledger.copies, later, numbers, bookie_ids)
    for ledger_id, plan in plans.items():
        _find_end(plan, open_ledgers.get(ledger_id), reliable)
    return plans


def read_copies(surveyed: SurveyedCopies) -> Iterator[Copies]:
    """Yield the copies of each ledger in the order of ids, those of an entry together, in the order
    of choice. A ledger with many copies comes in several parts."""
    for row_blocks in read_pieces(surveyed.runs, RUN_ROWS):
        if row_blocks and (rows := np.concatenate(row_blocks, axis=1)).size:
            for copies in split_by_ledger(sort_rows(rows)):
                yield order_by_choice(copies)


def _add_copies(
    plan: LedgerPlan,
    copies: Copies,
    bookie_numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    bookie_ids: Sequence[str],
    is_verifiable: bool,
) -> None:
    """Add some copies of a ledger, in the order of choice, to the sets of its plan."""
    # The first copy of an entry is its best: if that is not readable, none is.
    is_readable = copies.is_readable & copies.first_of_entries()
    plan.readable |= Availability.from_entries(copies.entry_id[is_readable])
    differs = find_differing(copies)
    if differs.any():
        plan.differing |= Availability.from_entries(copies.entry_id[differs])
    if is_verifiable:
        is_unverified = is_readable & (rank_class(copies.rank) == UNVERIFIED)
        if is_unverified.any():
            plan.unverified |= Availability.from_entries(copies.entry_id[is_unverified])
    has_readable = np.isin(copies.entry_id, copies.entry_id[is_readable])
    if not has_readable.all():
        lost, numbers = copies.where(~has_readable), bookie_numbers[~has_readable]
        _add_by_bookie(plan.damaged, lost, numbers, bookie_ids)


def _add_by_bookie(
    sets: dict[str, Availability],
    copies: Copies,
    bookie_numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    bookie_ids: Sequence[str],
) -> None:
    """Add the entries of copies to the sets of the bookies that have them."""
    for number in sorted({*bookie_numbers.tolist()}):
        entries = Availability.from_entries(copies.entry_id[bookie_numbers == number])
        sets[bookie_ids[number]] = sets.get(bookie_ids[number], NOTHING) | entries


def _find_end(plan: LedgerPlan, open_ledger: _OpenLedger | None, reliable: Collection[str]) -> None:
    """Set the ledger's end, and restrict the sets to the entries up to it."""
    if open_ledger is None:
        plan.last_entry = plan.metadata.last_entry_id
    else:
        copies = open_ledger.copies
        end = find_ledger_end(plan.metadata, open_ledger.lac, plan.readable, copies, reliable)
        plan.last_entry, plan.is_end_certain = end
    expected_entries = plan.expected
    if open_ledger is not None:
        plan.unconfirmed = plan.readable - expected_entries
    plan.readable &= expected_entries
    plan.differing &= expected_entries
    plan.unverified &= expected_entries
    plan.damaged = {bookie: entries & expected_entries for bookie, entries in plan.damaged.items()}
