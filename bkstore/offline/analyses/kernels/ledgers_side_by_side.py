"""Many ledgers' sequence groups in one array operation: laid side by side on one axis.

Each owner (a ledger, or a ledger of a bookie) is moved up by an offset of its own, the set
algebra runs once over all of them, and what comes out is moved back. Owners lie further apart
than any sequence period can be, so that no group reaches from one into the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bkstore.availability.from_entries import from_ids
from bkstore.availability.grouping import fold
from bkstore.availability.patterns import Operation
from bkstore.availability.sequence_groups import INT32_MAX, BoolArray, Groups, empty
from bkstore.availability.set_operations import combine, pieces
from bkstore.ids import Int64Array
from bkstore.offline.reading.ledger_ranges import run_starts

_AXIS = 2**62
_GAP = INT32_MAX + 1


class Owned(NamedTuple):
    """Groups and whose they are: `owner` ascends, and within an owner so do the groups."""

    owner: Int64Array
    groups: Groups

    @classmethod
    def none(cls) -> Owned:
        """Return no groups of nobody."""
        return cls(np.empty(0, np.int64), empty())

    def take(self, which: BoolArray | Int64Array) -> Owned:
        """Return the rows that a mask or an index array selects."""
        return Owned(self.owner[which], self.groups.take(which))


def count(rows: Owned, owners: int) -> Int64Array:
    """Return int64[owners]: how many entries each has. O(groups)."""
    found = np.zeros(owners, np.int64)
    np.add.at(found, rows.owner, rows.groups.counts * rows.groups.size)
    return found


def condense(owner: Int64Array, ids: Int64Array) -> Owned:
    """Return the canonical groups of entry ids by owner. O(ids).

    `owner` ascends; within an owner ids may come in any order, and twice.

    >>> found = condense(np.array([0, 0, 0, 5]), np.array([4, 5, 7, 6]))
    >>> found.owner.tolist(), [column.tolist() for column in found.groups]
    ([0, 0, 5], [[4, 7, 6], [4, 7, 6], [2, 1, 1], [0, 0, 0]])
    """
    starts = run_starts(owner)
    if starts.size == 1:
        groups = from_ids(ids)
        return Owned(np.full(groups.first.size, owner[0]), groups)
    spans = np.maximum.reduceat(ids, starts) + 1 if starts.size else starts
    parts = []
    bounds = np.append(starts, ids.size)
    for lo, hi, offsets in _axes(spans):
        here = slice(bounds[lo], bounds[hi])
        moved = ids[here] + np.repeat(offsets, np.diff(bounds[lo : hi + 1]))
        parts.append(_moved_back(from_ids(moved), offsets, owner[starts[lo:hi]]))
    return _joined(parts)


def fold_many(rows: Owned) -> Owned:
    """Return each owner's set in canonical form; its groups may touch, or overlap. O(groups)."""
    rows = _disjoint(rows)
    parts = []
    for part, offsets, names in _laid_out(rows):
        parts.append(_moved_back(fold(part), offsets, names))
    return _joined(parts)


def common(a: Owned, b: Owned, owners: int) -> Int64Array:
    """Return int64[owners]: how many entries both sides have. O(groups) on fitting stripes."""
    return count(combined(a, b, "and"), owners)


def combined(a: Owned, b: Owned, operation: Operation) -> Owned:
    """Return ``a & b``, ``a | b`` or ``a - b`` of each owner: groups that `fold_many` would make
    canonical. O(groups) on fitting stripes.

    >>> one, two = (condense(np.array([0, 0, 1]), np.array(ids)) for ids in ([4, 5, 7], [5, 6, 7]))
    >>> combined(one, two, "and").owner.tolist()
    [0, 1]
    """
    a, b = _disjoint(a), _disjoint(b)
    side = np.concatenate((np.zeros(a.owner.size, np.int64), np.ones(b.owner.size, np.int64)))
    both = Owned(
        np.concatenate((a.owner, b.owner)),
        Groups(*map(np.concatenate, zip(a.groups, b.groups))),
    )
    order = np.lexsort((both.groups.first, both.owner))
    both, side = both.take(order), side[order]
    parts, at = [], 0
    for part, offsets, names in _laid_out(both):
        mine = side[at : at + part.first.size]
        at += part.first.size
        met = pieces(part.take(mine == 0), part.take(mine == 1), operation)
        parts.append(_moved_back(met, offsets, names))
    return _joined(parts)


def _axes(spans: Int64Array) -> Iterator[tuple[int, int, Int64Array]]:
    """Yield half-open stretches of owners that fit one axis, and the offset of each."""
    lo, total = 0, 0
    if float(spans.sum(dtype=np.float64)) + float(spans.size) * _GAP < _AXIS:
        if spans.size:
            lengths = spans + _GAP
            yield 0, spans.size, np.cumsum(lengths) - lengths
        return
    offsets: list[int] = []
    for at, span in enumerate(spans.tolist()):
        if offsets and total + span > _AXIS:
            yield lo, at, np.array(offsets, np.int64)
            lo, total, offsets = at, 0, []
        offsets.append(total)
        total += span + _GAP
    yield lo, spans.size, np.array(offsets, np.int64)


def _laid_out(rows: Owned) -> Iterator[tuple[Groups, Int64Array, Int64Array]]:
    """Yield groups on an axis, the offsets of the owners there, and which owners they are."""
    starts = run_starts(rows.owner)
    spans = np.maximum.reduceat(rows.groups.ends, starts) if starts.size else starts
    bounds = np.append(starts, rows.owner.size)
    for lo, hi, offsets in _axes(spans):
        here = slice(bounds[lo], bounds[hi])
        move = np.repeat(offsets, np.diff(bounds[lo : hi + 1]))
        first, last, size, period = (column[here] for column in rows.groups)
        yield Groups(first + move, last + move, size, period), offsets, rows.owner[starts[lo:hi]]


def _moved_back(groups: Groups, offsets: Int64Array, names: Int64Array) -> Owned:
    at = np.searchsorted(offsets, groups.first, "right") - 1
    move = offsets[at]
    back = Groups(groups.first - move, groups.last - move, groups.size, groups.period)
    return Owned(names[at], back)


def _joined(parts: list[Owned]) -> Owned:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Owned.none()
    owners, groups = zip(*parts)
    return Owned(np.concatenate(owners), Groups(*map(np.concatenate, zip(*groups))))


def _disjoint(rows: Owned) -> Owned:
    """Return the rows, those of an owner whose groups overlap united first.

    No dump of bkstore has such: it is for tables that were put together from several.
    """
    clash = rows.owner[1:] == rows.owner[:-1]
    clash &= rows.groups.first[1:] < rows.groups.ends[:-1]
    if not clash.any():
        return rows
    bad = rows.owner[1:][clash]
    bad = bad[run_starts(bad)]
    parts, at = [], 0
    for name in bad.tolist():
        lo, hi = np.searchsorted(rows.owner, [name, name + 1]).tolist()
        parts.append(rows.take(np.arange(at, lo)))
        whole = _union(rows.groups, lo, hi)
        parts.append(Owned(np.full(whole.first.size, name), whole))
        at = hi
    parts.append(rows.take(np.arange(at, rows.owner.size)))
    return _joined(parts)


def _union(groups: Groups, lo: int, hi: int) -> Groups:
    part = groups.take(np.arange(lo, hi))
    if (part.ends[:-1] <= part.first[1:]).all():
        return fold(part)
    middle = (lo + hi) // 2
    return combine(_union(groups, lo, middle), _union(groups, middle, hi), "or")
