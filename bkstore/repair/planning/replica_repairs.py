"""ReplicaRepair: one row of a plan, what one bookie is to receive from another, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from bkstore.availability import Availability
from bkstore.durability.violations import MAX_RANGES
from bkstore.ids import LedgerId
from bkstore.ledger_metadata.owners import UNKNOWN_OWNER, LedgerOwner
from bkstore.tables import REPAIRS, Table

RepairAction = Literal["write", "replace", "move", "recover"]
"""How a replica is repaired.

write: the bookie of the ensemble gets the entries that it lacks; the metadata stay as they are.
replace: another bookie gets them, and takes the place of a bookie that is gone in the ensemble.
move: likewise for a bookie that answers, because the ensemble does not meet the placement policy.
recover: the ledger is open and its last segment names a bookie that is gone; it is closed first.
"""

RepairStatus = Literal["planned", "repaired", "failed", "impossible", "skipped"]
"""The state of a repair.

planned: it can be done. repaired: it was done, and the entries were read again from the target.
failed: an error ended it, `detail` has the reason. impossible: it cannot be done, `detail` has the
reason. skipped: it was not tried, for example because another worker had locked the ledger.
"""


class ReplicaRepair(NamedTuple):
    """Entries of one segment that one bookie lacks, and where copies of them come from and go to.

    `first_entry` is the segment's first entry; `bookie` is in its ensemble, at `bookie_index`, and
    lacks `missing`. `source` has copies of them, `target` is to receive them; None if there is no
    such bookie. It may lack them too if the repair `is_uncertain`: it did not list what it has.
    `owner` is the application or topic that the metadata name.
    """

    action: RepairAction
    status: RepairStatus
    ledger: LedgerId
    first_entry: int
    bookie: str
    bookie_index: int
    source: str | None = None
    target: str | None = None
    missing: Availability = Availability()
    detail: str = ""
    owner: LedgerOwner = UNKNOWN_OWNER
    is_uncertain: bool = False

    @property
    def sort_key(self) -> tuple[LedgerId, int, int, str, int]:
        """The sort key of plans: ledger (unsigned), segment, bookie, action, lowest entry."""
        lowest_entry = self.missing.first_entry
        entry_key = -1 if lowest_entry is None else lowest_entry
        return self.ledger, self.first_entry, self.bookie_index, self.action, entry_key

    def row(self) -> tuple[Any, ...]:
        """Return the row of the `repairs` table, of plain values."""
        ranges = self.missing.ranges() if self.missing.range_count <= MAX_RANGES else None
        return (
            self.action,
            self.status,
            *self.ledger.signed,
            self.ledger.qualified_name,
            *self.owner.columns,
            self.first_entry,
            self.bookie,
            self.source,
            self.target,
            len(self.missing),
            self.missing.first_entry,
            self.missing.last_entry,
            None if ranges is None else ranges.tolist(),
            self.missing.groups.tolist(),
            self.detail or None,
        )


def repairs_table(repairs: Iterable[ReplicaRepair]) -> Table:
    """Return the `repairs` table of some repairs."""
    return Table.from_rows(REPAIRS, (repair.row() for repair in repairs))
