"""BP-34's greedy grouping: the canonical sequence groups of a set of entry ids. The rule: visit the
sequences in order; a group of one sequence takes the next if the sizes are equal, and the distance
becomes the period; a longer group takes it only if size and distance both match; otherwise the
sequence opens the next group. `canonicalize` applies the rule to ordered, disjoint groups without
visiting the sequences inside them: the cost of striped input is in groups."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import (
    INT32_MAX,
    BoolArray,
    Groups,
    OwnedGroups,
    empty,
    interleave,
    single_sequences,
    split_long_periods,
)
from bkstore.ids import Int64Array


def from_half_open_ranges(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return canonical groups for ordered, disjoint half-open ranges. O(ranges)."""
    return canonicalize(single_sequences(starts, ends))


def from_half_open_ranges_of_many(
    starts: Int64Array, ends: Int64Array, owner: Int64Array
) -> OwnedGroups:
    """Return the canonical groups of several sets. O(ranges). Range i belongs to set ``owner[i]``;
    a set's ranges are adjacent rows, half-open, ordered, not touching."""
    rows = single_sequences(starts, ends)
    if starts.size < 2:
        return rows, owner
    slots = _list_step_slots(rows)
    # Slot i is the step from range i to range i + 1. A group must not take it if they are of two
    # sets.
    slots.may_join[owner[1:] != owner[:-1]] = False
    groups, first_rows = _group_slots(rows, slots)
    return groups, owner[first_rows]


def canonicalize_parts(parts: list[Groups]) -> Groups:
    """Return the canonical groups of ordered parts, each disjoint and above the previous one."""
    if not parts:
        return empty()
    return canonicalize(Groups(*(np.concatenate(columns) for columns in zip(*parts))))


def canonicalize(groups: Groups) -> Groups:
    """Return the canonical (greedy) form of ordered, disjoint, possibly touching groups. O(groups).
    Equal sets have equal groups: those of BP-34's rule for their maximal sequences."""
    if groups.first.size == 0 or (groups.first.size == 1 and _is_canonical(groups)):
        return groups
    groups = _merge_touching(split_long_periods(_flatten_dense(groups)))
    if groups.first.size == 1:
        return groups
    canonical_groups, _ = _group_slots(groups, _list_step_slots(groups))
    return canonical_groups


def _is_canonical(groups: Groups) -> bool:
    """Return whether a single group is in canonical form."""
    first, last, size, period = (int(column[0]) for column in groups)
    return period == 0 if last == first else size < period <= INT32_MAX


def _flatten_dense(groups: Groups) -> Groups:
    """Return the groups, with each whose sequences touch (period equals size) as one sequence."""
    dense = (groups.period == groups.size) & (groups.last > groups.first)
    if not dense.any():
        return groups
    last = np.where(dense, groups.first, groups.last)
    size = np.where(dense, groups.ends - groups.first, groups.size)
    return Groups(groups.first, last, size, np.where(dense, 0, groups.period))


def _merge_touching(groups: Groups) -> Groups:
    """Join sequences that touch at a border of two groups, after cutting them off longer groups.
    Border i is between group i and group i + 1.

    Example: the ids {0, 1}, {5, 6} are one group, first 0, last 5, size 2, period 5, and touch the
    group {7, 8}. Cutting gives the groups {0, 1}, {5, 6}, {7, 8}; joining {0, 1}, {5, 6, 7, 8}.
    """
    ends = groups.ends
    borders = np.flatnonzero(ends[:-1] == groups.first[1:])
    if not borders.size:
        return groups
    if (groups.last > groups.first)[np.concatenate((borders, borders + 1))].any():
        groups = _cut_off_touching(groups, borders)
        ends = groups.ends
        borders = np.flatnonzero(ends[:-1] == groups.first[1:])
    # Now both groups at each border are single sequences. Adjacent borders are one chain, whose
    # first group gets the size of all its groups.
    is_gap = np.diff(borders) > 1  # between two chains
    heads = borders[np.concatenate(([True], is_gap))]
    tails = borders[np.concatenate((is_gap, [True]))] + 1
    keep = np.ones(ends.size, np.bool_)
    keep[borders + 1] = False
    joined = groups.take(keep)
    # The row of a head in `joined`: one group was dropped for each border before it.
    joined_heads = heads - np.searchsorted(borders, heads)
    joined.size[joined_heads] = ends[tails] - groups.first[heads]
    joined.period[joined_heads] = 0
    return joined


def _cut_off_touching(groups: Groups, borders: npt.NDArray[np.intp]) -> Groups:
    """Return the groups, with sequences that touch another group as groups of their own. At border
    i the last sequence of group i touches the first of group i + 1; if a group has several
    sequences, that one is split off."""
    # Which groups of several sequences lose their first or last one.
    is_long = groups.last > groups.first
    cut_first, cut_last = np.zeros_like(is_long), np.zeros_like(is_long)
    cut_first[borders + 1] = cut_last[borders] = True
    cut_first, cut_last = cut_first & is_long, cut_last & is_long
    first = groups.first + cut_first * groups.period
    last = groups.last - cut_last * groups.period
    pieces = (
        single_sequences(groups.first, groups.first + groups.size),
        Groups(first, last, groups.size, np.where(last > first, groups.period, 0)),
        single_sequences(groups.last, groups.ends),
    )
    return interleave(pieces, (cut_first, first <= last, cut_last))


class _StepSlots(NamedTuple):
    """Steps from one sequence to the next; the equal steps inside a group are one slot. A slot is
    `step_count` steps of `distance`; the first of them leads from the start `before` to the start
    `after`, of a sequence of `size` ids. `may_join`: the rule may put both into one group."""

    may_join: BoolArray
    distance: Int64Array
    step_count: Int64Array
    before: Int64Array
    after: Int64Array
    size: Int64Array


def _list_step_slots(groups: Groups) -> _StepSlots:
    """Return the steps from each sequence to the next, in order: those inside of a group, then the
    one to the next group, and so on. Equal steps inside of a group are one slot. A slot has whether
    a group may take the step at all, its distance, how many steps it stands for, the sequence
    starts before and after its first step, and the size of the sequence after it."""
    before, after, size = groups.last[:-1], groups.first[1:], groups.size[1:]
    distance = after - before
    may_join = (size == groups.size[:-1]) & (size <= INT32_MAX) & (distance <= INT32_MAX)
    one_each = np.ones_like(distance)
    between = _StepSlots(may_join, distance, one_each, before, after, size)
    inner_steps = groups.counts - 1
    if not inner_steps.any():
        return between
    always, second = np.ones(inner_steps.size, np.bool_), groups.first + groups.period
    within = _StepSlots(always, groups.period, inner_steps, groups.first, second, groups.size)
    # Interleave them: the slot inside of a group, that between it and the next, and so on.
    columns: list[Any] = []
    for inner, outer in zip(within, between):
        column = np.empty(inner.size + outer.size, inner.dtype)
        column[0::2], column[1::2] = inner, outer
        columns.append(column)
    keep = _StepSlots(*columns).step_count > 0  # no slot inside of a group of one sequence
    return _StepSlots(*[column[keep] for column in columns])


def _group_slots(groups: Groups, slots: _StepSlots) -> tuple[Groups, npt.NDArray[np.intp]]:
    """Return the groups by the greedy rule, and how many slots precede each. `slots` are the steps
    of `groups`, as `_list_step_slots` returns them.

    Example: the ids 0, 3, 6, 10, 14 come as two groups, 0 to 6 with period 3 and 10 to 14 with
    period 4. The steps between them are 3, 3, 4, 4, in three slots: two steps of 3, one of 4
    (from 6 to 10), one of 4. The group that starts at 0 has period 3, so it cannot take the step
    from 6 to 10: that slot closes it, and a group starts at 10. Slots precede them: 0 and 2.
    """
    # The first step of a closing slot is the border between two new groups.
    closing = np.flatnonzero(_find_closing_slots(slots))
    first = np.concatenate((groups.first[:1], slots.after[closing]))
    last = np.concatenate((slots.before[closing], groups.last[-1:]))
    size = np.concatenate((groups.size[:1], slots.size[closing]))
    # A group's period is its first step. That is the second step of the closing slot before the
    # group, or the first of the next slot if the closing one has a single step.
    step_slot = np.concatenate(([0], np.where(slots.step_count[closing] > 1, closing, closing + 1)))
    period = slots.distance[np.minimum(step_slot, slots.distance.size - 1)]
    grouped = Groups(first, last, size, np.where(last > first, period, 0))
    return grouped, np.concatenate(([0], closing + 1))


def _find_closing_slots(slots: _StepSlots) -> BoolArray:
    """Return bool[n]: which slots begin with a step that is the border between two groups. By the
    greedy rule a group takes the next sequence whenever it can: its first step sets its period, and
    later steps must have that distance.

    A stretch is a longest series of slots that may not join, or that may join and have one
    distance. If its steps may not join, each is a border. If they may, one group takes them all,
    except the first step if the group before it has a period already: that is another distance, so
    the step is a border. Whether the group has a period is a bit, computed for the end of each
    stretch: cleared if the steps may not join, as a new group begins; set after two steps or more;
    flipped by a single step, which becomes the period of a group without one, or else is the border
    after which a group without a period begins."""
    # Find the first slot of each stretch, and what the stretch does to the bit.
    changes = slots.may_join[1:] != slots.may_join[:-1]
    changes |= slots.may_join[1:] & (slots.distance[1:] != slots.distance[:-1])
    first_slots = np.flatnonzero(np.concatenate(([True], changes)))
    may_join = slots.may_join[first_slots]
    is_single = np.add.reduceat(slots.step_count, first_slots) == 1
    flips = may_join & is_single
    # For each stretch, the number from 1 of the last one so far that clears or sets the bit; 0 if
    # none has: the bit is cleared at the start.
    last_reset = np.maximum.accumulate(np.where(flips, 0, np.arange(1, first_slots.size + 1)))
    # The bit after a stretch is that of the last reset, flipped once for each flip since.
    bit_at_reset = np.concatenate(([False], may_join & ~is_single))[last_reset]
    flip_counts = np.concatenate(([0], np.cumsum(flips)))
    has_period_after = bit_at_reset ^ ((flip_counts[1:] - flip_counts[last_reset]) % 2 == 1)
    has_period_before = np.concatenate(([False], has_period_after[:-1]))
    is_closing = ~slots.may_join
    is_closing[first_slots] |= has_period_before
    return is_closing
