"""The violations that missing replicas mean, by category (the durability contract of BP-34)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.tables import VIOLATIONS, Table


class Shortage(NamedTuple):
    """The entry of a ledger with the most missing replicas, and how many are missing."""

    missing: int
    entry_id: int


class MissingReplicas(NamedTuple):
    """The entries of the segment that begins at `first_entry` that one bookie lacks."""

    first_entry: int
    ensemble: Sequence[str]
    bookie_index: int
    missing: Availability

    @property
    def bookie(self) -> str:
        """The bookie's id."""
        return self.ensemble[self.bookie_index]


def find_worst_shortage(missing: Iterable[Availability]) -> Shortage | None:
    """Return the entry with the most missing replicas, None if no replica is missing. `missing` has
    a set for each bookie of each segment: the entries that it lacks. O(groups x write quorum).

    >>> find_worst_shortage([Availability.from_entries([3, 4]), Availability.from_entries([4, 5])])
    Shortage(missing=2, entry_id=4)
    """
    layers: list[Availability] = []  # layer k: the entries that at least k + 1 bookies lack
    for entries in missing:
        carry = entries  # an entry that is in a layer already is counted in the next one
        for depth, layer in enumerate(layers):
            layers[depth], carry = layer | carry, layer & carry
        if carry:
            layers.append(carry)
    return Shortage(len(layers), layers[-1].first_entry or 0) if layers else None


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
DURABILITY_CATEGORIES: tuple[Category, ...] = CATEGORIES[:3]

MAX_RANGES = 10_000
"""Up to this many ranges are listed in a table row; with more it has the groups only."""


class Violation(NamedTuple):
    """One violation. `first_entry` is the segment's first entry, `bookie` the replica's: both None
    for a violation of the whole ledger. `ledger` is None for one of a bookie. `missing` has the
    segment's entries that the bookie lacks: the empty set if the violation is not about missing
    entries, None if they are unknown."""

    category: Category
    ledger: LedgerId | None
    first_entry: int | None = None
    bookie: str | None = None
    missing: Availability | None = Availability()
    detail: str = ""

    @property
    def sort_key(self) -> tuple[bool, LedgerId, int, str, str]:
        """The sort key of reports: ledger (unsigned; None first), segment, category, bookie."""
        first_entry = -1 if self.first_entry is None else self.first_entry
        ledger = self.ledger or LedgerId(0, 0)
        return self.ledger is not None, ledger, first_entry, self.category, self.bookie or ""

    def row(self) -> tuple[Any, ...]:
        """Return the row of the `violations` table, of plain values."""
        cells = self.cells()
        return tuple(cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells)

    def cells(self) -> tuple[Any, ...]:
        """Return the row of the table, with ranges and groups as int64[n, 2] and int64[n, 4]."""
        ids: tuple[Any, ...] = (None, None, None)
        if self.ledger is not None:
            ids = (*self.ledger.signed, self.ledger.qualified_name)
        replica = (self.first_entry, self.bookie)
        return self.category, *ids, *replica, *_missing_cells(self.missing), self.detail


def _missing_cells(entries: Availability | None) -> tuple[Any, ...]:
    """Return the cells of a violation's row on its missing entries: their number, the first and the
    last, their ranges (None if too many), and their sequence groups. All are None if the missing
    entries are unknown."""
    if entries is None:
        return (None,) * 5
    # Each sequence of a group is a range; single sequences have the period 0.
    first, last, _, period = entries.groups.T
    range_count = int(((last - first) // period.clip(1) + 1).sum())
    ranges = entries.ranges() if range_count <= MAX_RANGES else None
    return len(entries), entries.first_entry, entries.last_entry, ranges, entries.groups


def violations_table(violations: Iterable[Violation]) -> Table:
    """Return the `violations` table of some violations."""
    return Table.from_rows(VIOLATIONS, (violation.row() for violation in violations))


def categorize_shortage(replicas: int, write_quorum: int, ack_quorum: int) -> Category:
    """Return the category of a ledger whose worst entry has `replicas` of the W replicas that it
    should have: none, fewer than the ack quorum (the number that makes an entry acknowledged), or
    fewer than the write quorum. Raises `InvalidArgument` if no replica is missing.

    >>> [categorize_shortage(replicas, 3, 2) for replicas in (0, 1, 2)]
    ['no_replica', 'below_ack_quorum', 'below_write_quorum']
    """
    if not 0 <= replicas < write_quorum:
        raise InvalidArgument(f"{replicas} of {write_quorum} replicas is not a shortage")
    if replicas == 0:
        return "no_replica"
    return "below_ack_quorum" if replicas < ack_quorum else "below_write_quorum"


def durability_violations(
    ledger: LedgerId,
    missing: Sequence[MissingReplicas],
    worst: Shortage,
    write_quorum: int,
    ack_quorum: int,
) -> Iterator[Violation]:
    """Yield a violation for each item of `missing`, which is what one bookie lacks of one segment.
    All have the category of the ledger's `worst` entry."""
    category = categorize_shortage(write_quorum - worst.missing, write_quorum, ack_quorum)
    quorums = f"W {write_quorum}, A {ack_quorum}"
    shortage = f"lacks {worst.missing} of {write_quorum} replicas"
    for gap in missing:
        index = f"index {gap.bookie_index} of {' '.join(gap.ensemble)}"
        detail = f"{index}; {quorums}; entry {worst.entry_id} of the ledger {shortage}"
        yield Violation(category, ledger, gap.first_entry, gap.bookie, gap.missing, detail)
