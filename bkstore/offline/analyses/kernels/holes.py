"""Groups to `holes` rows: what each ledger's own stripe asks for between its ends and is missing.

Entries that lie off the stripe fill no hole: both are counted, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.availability.sequence_groups import Groups
from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.ledgers_side_by_side import (
    Owned,
    common,
    count,
    fold_many,
)
from bkstore.offline.analyses.kernels.whole_ledger_blocks import ledger_groups
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import HOLES, Table

if TYPE_CHECKING:
    import pyarrow as pa


class _Stripes(NamedTuple):
    """Of each owner that has a stripe: `size` of each `period`, beginning at `phase`."""

    owner: Int64Array
    size: Int64Array
    period: Int64Array
    phase: Int64Array


class Holes:
    """Groups to `holes` rows.

    Rows of `groups`, sorted by bookie and ledger, then by first sequence. With `bookie` given all
    rows are that one's, and the column is not looked at. Sets of entries are compared as groups:
    O(groups), whatever the length of a stripe.
    """

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `holes`."""
        for block in ledger_groups(batches, self.bookie):
            found = _Counted.of(fold_many(block.groups), block.starts.size)
            (lacking,) = np.nonzero(found.holes)
            made: dict[str, Any] = {
                **block.ids(lacking),
                "first_entry": found.low[lacking],
                "last_entry": found.high[lacking] - 1,
                "entries": found.stored[lacking],
                "stripe": found.stripes(lacking),
                "holes": found.holes[lacking],
                "off_stripe": found.off_stripe[lacking],
            }
            yield from Table(HOLES, made).to_arrow().to_batches()


class _Counted(NamedTuple):
    """By owner: where its entries lie (`low` to before `high`), its stripe (0 of 0: every entry is
    asked for), and how many entries are stored, missing of the stripe, and off it.
    """

    low: Int64Array
    high: Int64Array
    size: Int64Array
    period: Int64Array
    stored: Int64Array
    holes: Int64Array
    off_stripe: Int64Array

    @classmethod
    def of(cls, rows: Owned, owners: int) -> _Counted:
        """Return what is counted of canonical groups; every owner has some."""
        starts = run_starts(rows.owner)
        low, high = rows.groups.first[starts], np.maximum.reduceat(rows.groups.ends, starts)
        stored = count(rows, owners)
        size, period, off = (np.zeros(owners, np.int64) for _ in range(3))
        holes = high - low - stored
        # A stripe replaces "every entry" for the owners that have one.
        stripes = _stripes(rows, stored)
        mine = stripes.owner
        due = _due(stripes, low[mine], high[mine])
        both = common(due, rows.take(np.isin(rows.owner, mine)), owners)[mine]
        size[mine], period[mine] = stripes.size, stripes.period
        holes[mine] = count(due, owners)[mine] - both
        off[mine] = stored[mine] - both
        return cls(low, high, size, period, stored, holes, off)

    def stripes(self, which: Int64Array) -> list[str]:
        """Return the stripes of some owners in words."""
        pairs = zip(self.size[which].tolist(), self.period[which].tolist())
        return [f"{size} of {period}" if period else "all" for size, period in pairs]


def _stripes(rows: Owned, stored: Int64Array) -> _Stripes:
    """Return the (size, period) that covers more than half of an owner's entries, placed where the
    longest such group lies, the first of equal ones.
    """
    rows = rows.take(rows.groups.period > 0)
    first, _, size, period = rows.groups
    entries = rows.groups.counts * size
    order = np.lexsort((first, -entries, period, size, rows.owner))
    heads = run_starts(rows.owner[order], size[order], period[order])
    if not heads.size:
        return _Stripes(heads, heads, heads, heads)
    covered = np.add.reduceat(entries[order], heads)
    best = order[heads][covered * 2 > stored[rows.owner[order[heads]]]]
    return _Stripes(rows.owner[best], size[best], period[best], first[best] % period[best])


def _due(stripes: _Stripes, low: Int64Array, high: Int64Array) -> Owned:
    """Return the entries of each stripe from `low` to before `high`: as three groups at most."""
    owner, size, period, phase = stripes
    into = (low - phase) % period
    # What is left of the sequence that `low` lies in; none if it lies between two of them.
    head_end = np.minimum(low + np.maximum(size - into, 0), high)
    head_end[into == 0] = low[into == 0]
    # Whole sequences, then what `high` leaves of the last one.
    start = np.where(into == 0, low, low + period - into)
    whole = np.maximum((high - size - start) // period + 1, 0)
    tail = start + whole * period
    zero = np.zeros_like(low)
    parts = (
        (head_end > low, low, low, head_end - low, zero),
        (whole > 0, start, tail - period, size, np.where(whole > 1, period, 0)),
        (tail < high, tail, tail, np.minimum(high - tail, size), zero),
    )
    chosen = [(owner[some], *(column[some] for column in columns)) for some, *columns in parts]
    owners, *columns = (np.concatenate(column) for column in zip(*chosen))
    order = np.lexsort((columns[0], owners))
    return Owned(owners[order], Groups(*(column[order] for column in columns)))
