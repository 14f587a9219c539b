"""Groups to `holes` rows: the entries missing from each ledger's stripe between first and last. A
stripe is the part of a ledger that one of its bookies stores: `size` entries out of each `period`.
It is derived from the stored entries. Entries off it are counted, and do not fill holes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.availability.sequence_groups import Groups
from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.batch_blocks import cut_ledger_blocks
from bkstore.offline.analyses.kernels.groups_by_owner import (
    GroupsByOwner,
    count_common,
    count_entries,
    fold_many,
)
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import HOLES, Table

if TYPE_CHECKING:
    import pyarrow as pa


class _Stripes(NamedTuple):
    """The owners that have a stripe: `size` entries out of each `period`, beginning at `phase`."""

    owner: Int64Array
    size: Int64Array
    period: Int64Array
    phase: Int64Array


class Holes:
    """Groups to `holes` rows, in O(groups). Input: rows of `groups`, sorted by bookie, ledger and
    first sequence. With `bookie`, all rows are of that one, and the column is not read."""

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `holes`."""
        for block in cut_ledger_blocks(batches, self.bookie):
            counts = _HoleCounts.of(fold_many(block.groups), block.starts.size)
            (with_holes,) = np.nonzero(counts.holes)
            columns: dict[str, Any] = {
                **block.id_columns(with_holes),
                "first_entry": counts.low[with_holes],
                "last_entry": counts.high[with_holes] - 1,
                "entries": counts.stored[with_holes],
                "stripe": counts.stripes(with_holes),
                "holes": counts.holes[with_holes],
                "off_stripe": counts.off_stripe[with_holes],
            }
            yield from Table(HOLES, columns).to_arrow().to_batches()


class _HoleCounts(NamedTuple):
    """Counts by owner. Entries are stored from `low` to before `high`: `stored` of them. `size` out
    of each `period` are expected (0 out of 0: all); `holes` of these are missing, and `off_stripe`
    of the stored ones are not expected."""

    low: Int64Array
    high: Int64Array
    size: Int64Array
    period: Int64Array
    stored: Int64Array
    holes: Int64Array
    off_stripe: Int64Array

    @classmethod
    def of(cls, rows: GroupsByOwner, owner_count: int) -> _HoleCounts:
        """Return the counts of canonical groups; owners are 0 to `owner_count` - 1, all of them."""
        # First expect all entries between the lowest and the highest stored one.
        starts = run_starts(rows.owner)
        low, high = rows.groups.first[starts], np.maximum.reduceat(rows.groups.ends, starts)
        stored = count_entries(rows, owner_count)
        size, period, off_stripe = (np.zeros(owner_count, np.int64) for _ in range(3))
        holes = high - low - stored
        # Of the owners that have a stripe, expect the entries of the stripe instead.
        stripes = _find_stripes(rows, stored)
        striped = stripes.owner
        expected = _stripe_entries(stripes, low[striped], high[striped])
        striped_rows = rows.take(np.isin(rows.owner, striped))
        stored_of_stripe = count_common(expected, striped_rows, owner_count)[striped]
        size[striped], period[striped] = stripes.size, stripes.period
        holes[striped] = count_entries(expected, owner_count)[striped] - stored_of_stripe
        off_stripe[striped] = stored[striped] - stored_of_stripe
        return cls(low, high, size, period, stored, holes, off_stripe)

    def stripes(self, which: Int64Array) -> list[str]:
        """Return the stripes of the owners with these numbers as text."""
        pairs = zip(self.size[which].tolist(), self.period[which].tolist())
        return [f"{size} of {period}" if period else "all" for size, period in pairs]


def _find_stripes(rows: GroupsByOwner, stored_counts: Int64Array) -> _Stripes:
    """Return the stripe of each owner that has one: the (size, period) of more than half of its
    entries, with the phase of the longest such group, the first of equally long ones."""
    rows = rows.take(rows.groups.period > 0)  # others are single sequences
    first, _, size, period = rows.groups
    entry_counts = rows.groups.counts * size
    order = np.lexsort((first, -entry_counts, period, size, rows.owner))
    # The rows of an owner, size and period are a run now, with the longest group first.
    run_heads = run_starts(rows.owner[order], size[order], period[order])
    if not run_heads.size:
        return _Stripes(run_heads, run_heads, run_heads, run_heads)
    # At most one run of an owner has more than half of its entries.
    run_entries = np.add.reduceat(entry_counts[order], run_heads)
    longest = order[run_heads]
    best = longest[run_entries * 2 > stored_counts[rows.owner[longest]]]
    return _Stripes(rows.owner[best], size[best], period[best], first[best] % period[best])


def _stripe_entries(stripes: _Stripes, low: Int64Array, high: Int64Array) -> GroupsByOwner:
    """Return the entries of each stripe from `low` to before `high`, as at most three groups."""
    owner, size, period, phase = stripes
    # The entries are: a head, the end of the sequence in which `low` lies; whole sequences; and a
    # tail, the beginning of the sequence in which `high` lies. `low` is this far behind the
    # beginning of a sequence; with 0 there is no head.
    phase_offset = (low - phase) % period
    # Head: the rest of the sequence that contains `low`; empty if `low` is between two sequences.
    head_end = np.minimum(low + np.maximum(size - phase_offset, 0), high)
    head_end[phase_offset == 0] = low[phase_offset == 0]
    # Whole sequences from `start` on; tail: the part of the last one before `high`.
    start = np.where(phase_offset == 0, low, low + period - phase_offset)
    whole_count = np.maximum((high - size - start) // period + 1, 0)
    tail = start + whole_count * period
    zero = np.zeros_like(low)
    # For each section: whether it has entries, then first, last, size and period of its group.
    sections = (
        (head_end > low, low, low, head_end - low, zero),
        (whole_count > 0, start, tail - period, size, np.where(whole_count > 1, period, 0)),
        (tail < high, tail, tail, np.minimum(high - tail, size), zero),
    )
    present_sections = [
        (owner[is_present], *(column[is_present] for column in columns))
        for is_present, *columns in sections
    ]
    owners, *columns = (np.concatenate(column) for column in zip(*present_sections))
    order = np.lexsort((columns[0], owners))
    return GroupsByOwner(owners[order], Groups(*(column[order] for column in columns)))
