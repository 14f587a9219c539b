"""Set operations on the sequence groups of many ledgers at once: side by side on one axis.

Each owner (a ledger, or a ledger of a bookie) is shifted by an offset of its own, the set algebra
runs once over all of them, and the result is shifted back. The gap between owners is larger than
any sequence period, so that no group extends from one owner into the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bkstore.availability.from_entries import from_ids
from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import INT32_MAX, BoolArray, Groups, empty
from bkstore.availability.set_operations import combine, combine_uncanonical
from bkstore.availability.stripe_operations import SetOperation
from bkstore.ids import Int64Array
from bkstore.offline.reading.ledger_ranges import run_starts

_AXIS_LENGTH = 2**62
_GAP = INT32_MAX + 1


class GroupsByOwner(NamedTuple):
    """Groups and their owners: `owner` ascends, and within an owner so do the groups."""

    owner: Int64Array
    groups: Groups

    @classmethod
    def empty(cls) -> GroupsByOwner:
        """Return an empty set of groups."""
        return cls(np.empty(0, np.int64), empty())

    def take(self, selection: BoolArray | Int64Array) -> GroupsByOwner:
        """Return the rows that a mask or an index array selects."""
        return GroupsByOwner(self.owner[selection], self.groups.take(selection))

    def cut(self, begin: int, end: int) -> GroupsByOwner:
        """Return the rows from `begin` to before `end`."""
        return GroupsByOwner(
            self.owner[begin:end], Groups(*(column[begin:end] for column in self.groups))
        )


def count_entries(rows: GroupsByOwner, owner_count: int) -> Int64Array:
    """Return int64[owners]: the number of entries of each. O(groups)."""
    entry_counts = np.zeros(owner_count, np.int64)
    np.add.at(entry_counts, rows.owner, rows.groups.counts * rows.groups.size)
    return entry_counts


def condense_by_owner(owner: Int64Array, ids: Int64Array) -> GroupsByOwner:
    """Return the canonical groups of entry ids by owner. O(ids).

    `owner` ascends; within an owner, ids may be unordered and repeated.

    >>> found = condense_by_owner(np.array([0, 0, 0, 5]), np.array([4, 5, 7, 6]))
    >>> found.owner.tolist(), [column.tolist() for column in found.groups]
    ([0, 0, 5], [[4, 7, 6], [4, 7, 6], [2, 1, 1], [0, 0, 0]])
    """
    starts = run_starts(owner)
    if starts.size == 1:  # a single owner needs no shifting
        groups = from_ids(ids)
        return GroupsByOwner(np.full(groups.first.size, owner[0]), groups)
    # Shift each owner's ids to a place of its own on an axis; `from_ids` then runs once per axis.
    spans = np.maximum.reduceat(ids, starts) + 1 if starts.size else starts
    groups_of_axes = []
    bounds = np.append(starts, ids.size)
    for first, end, offsets in _split_axes(spans):
        axis_ids = ids[bounds[first] : bounds[end]]
        shifted_ids = axis_ids + np.repeat(offsets, np.diff(bounds[first : end + 1]))
        groups_of_axes.append(_shift_back(from_ids(shifted_ids), offsets, owner[starts[first:end]]))
    return concatenate_groups(groups_of_axes)


def fold_many(rows: GroupsByOwner) -> GroupsByOwner:
    """Return each owner's set in canonical form; groups may touch or overlap. O(groups)."""
    groups_of_axes = []
    for axis_groups, offsets, owners in _shift_to_axes(_unite_overlaps(rows)):
        groups_of_axes.append(_shift_back(canonicalize(axis_groups), offsets, owners))
    return concatenate_groups(groups_of_axes)


def count_common(a: GroupsByOwner, b: GroupsByOwner, owner_count: int) -> Int64Array:
    """Return int64[owners]: the number of entries in both sets. O(groups) if periods agree."""
    return count_entries(combine_groups(a, b, "and"), owner_count)


def combine_groups(a: GroupsByOwner, b: GroupsByOwner, operation: SetOperation) -> GroupsByOwner:
    """Return ``a & b``, ``a | b`` or ``a - b`` of each owner, not in canonical form (`fold_many`).

    O(groups) if overlapping groups have equal periods, else O(sequences).

    >>> owners = np.array([0, 0, 1])
    >>> one, two = (condense_by_owner(owners, np.array(ids)) for ids in ([4, 5, 7], [5, 6, 7]))
    >>> combine_groups(one, two, "and").owner.tolist()
    [0, 1]
    """
    a, b = _unite_overlaps(a), _unite_overlaps(b)
    # Merge both, so that an owner gets the same offset in `a` and in `b`, and sort by owner.
    merged = concatenate_groups([a, b])
    order = np.lexsort((merged.groups.first, merged.owner))
    is_of_b = order >= a.owner.size
    groups_of_axes, start = [], 0
    for axis_groups, offsets, owners in _shift_to_axes(merged.take(order)):
        # Separate them again, and combine the whole axis at once.
        in_b = is_of_b[start : start + axis_groups.first.size]
        start += axis_groups.first.size
        a_groups, b_groups = axis_groups.take(~in_b), axis_groups.take(in_b)
        result = combine_uncanonical(a_groups, b_groups, operation)
        groups_of_axes.append(_shift_back(result, offsets, owners))
    return concatenate_groups(groups_of_axes)


def _split_axes(spans: Int64Array) -> Iterator[tuple[int, int, Int64Array]]:
    """Place owners, whose ids are below `spans`, one after the other on as few axes as needed.
    Yields for each axis its half-open range of owner numbers, and the offsets of these owners."""
    # Usually one axis is enough. The sum is of floats, as it may be too large for an int64.
    if float(spans.sum(dtype=np.float64)) + float(spans.size) * _GAP < _AXIS_LENGTH:
        if spans.size:
            lengths = spans + _GAP
            yield 0, spans.size, np.cumsum(lengths) - lengths
        return
    first_owner, used_length = 0, 0
    offsets: list[int] = []
    for owner_number, span in enumerate(spans.tolist()):
        if offsets and used_length + span > _AXIS_LENGTH:
            yield first_owner, owner_number, np.array(offsets, np.int64)
            first_owner, used_length, offsets = owner_number, 0, []
        offsets.append(used_length)
        used_length += span + _GAP
    yield first_owner, spans.size, np.array(offsets, np.int64)


def _shift_to_axes(rows: GroupsByOwner) -> Iterator[tuple[Groups, Int64Array, Int64Array]]:
    """Yield for each axis its shifted groups, the offsets of its owners, and the owners."""
    starts = run_starts(rows.owner)
    spans = np.maximum.reduceat(rows.groups.ends, starts) if starts.size else starts
    bounds = np.append(starts, rows.owner.size)  # the n-th owner has rows bounds[n] to [n + 1]
    for begin, end, offsets in _split_axes(spans):
        axis_rows = slice(bounds[begin], bounds[end])
        shift = np.repeat(offsets, np.diff(bounds[begin : end + 1]))
        first, last, size, period = (column[axis_rows] for column in rows.groups)
        shifted_groups = Groups(first + shift, last + shift, size, period)
        yield shifted_groups, offsets, rows.owner[starts[begin:end]]


def _shift_back(groups: Groups, offsets: Int64Array, owners: Int64Array) -> GroupsByOwner:
    """Return groups of one axis as those of their owners: of the owner with the last offset at or
    below the group, which is subtracted."""
    owner_index = np.searchsorted(offsets, groups.first, "right") - 1
    shift = offsets[owner_index]
    back = Groups(groups.first - shift, groups.last - shift, groups.size, groups.period)
    return GroupsByOwner(owners[owner_index], back)


def concatenate_groups(sections: list[GroupsByOwner]) -> GroupsByOwner:
    """Return the rows of all sections, one after the other. Owners must ascend in each section and
    from one to the next."""
    if len(sections) == 1:
        return sections[0]
    if not sections:
        return GroupsByOwner.empty()
    owners, groups = zip(*sections)
    columns = zip(*groups)  # each column of all sections
    return GroupsByOwner(np.concatenate(owners), Groups(*map(np.concatenate, columns)))


def _unite_overlaps(rows: GroupsByOwner) -> GroupsByOwner:
    """Return the rows with the overlapping groups of an owner united: set operations need disjoint
    ones, but a table that was merged from several dumps may have others."""
    overlaps_previous = rows.owner[1:] == rows.owner[:-1]
    overlaps_previous &= rows.groups.first[1:] < rows.groups.ends[:-1]
    if not overlaps_previous.any():
        return rows
    # Copy the rows in sections; those of an owner with an overlap are replaced by their union.
    sections, copied_rows = [], 0
    for owner in np.unique(rows.owner[1:][overlaps_previous]).tolist():
        begin, end = np.searchsorted(rows.owner, [owner, owner + 1]).tolist()
        sections.append(rows.cut(copied_rows, begin))
        union = _union(rows.groups, begin, end)
        sections.append(GroupsByOwner(np.full(union.first.size, owner), union))
        copied_rows = end
    sections.append(rows.cut(copied_rows, rows.owner.size))
    return concatenate_groups(sections)


def _union(groups: Groups, begin: int, end: int) -> Groups:
    """Return the union of groups number `begin` to before `end`. Halves them until none overlap,
    as set operations require of each operand."""
    overlapping = groups.take(np.arange(begin, end))
    if (overlapping.ends[:-1] <= overlapping.first[1:]).all():
        return canonicalize(overlapping)
    middle = (begin + end) // 2
    return combine(_union(groups, begin, middle), _union(groups, middle, end), "or")
