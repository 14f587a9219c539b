"""BP-34's greedy grouping, on groups: the one canonical list for a set of entry ids.

The rule: walk the sequences; a group of one takes the next sequence if the sizes are equal,
and the distance becomes the period; a longer group takes it only if size and distance both
match; otherwise the group closes and the sequence opens the next one. `fold` applies it to any
ordered, disjoint groups without visiting the sequences inside a group, so costs are in groups,
not in entries, as long as the input is striped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import INT32_MAX, BoolArray, Groups, empty, sequences
from bkstore.ids import Int64Array


def from_runs(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return canonical groups for ordered, disjoint half-open runs. O(runs)."""
    return fold(Groups(starts, starts, ends - starts, np.zeros_like(starts)))


def from_runs_of_many(
    starts: Int64Array, ends: Int64Array, owner: Int64Array
) -> tuple[Groups, Int64Array]:
    """Return canonical groups of several sets, and whose each is. O(runs) for all of them.

    Run i is of set ``owner[i]``; the runs of a set follow each other, half-open, ordered and not
    touching. No group reaches from one set into the next.
    """
    rows = Groups(starts, starts, ends - starts, np.zeros_like(starts))
    if starts.size < 2:
        return rows, owner
    slots = _transitions(rows)
    slots.joins[owner[1:] != owner[:-1]] = False
    groups, opens = _grouped(rows, slots)
    return groups, owner[opens]


def join(parts: list[Groups]) -> Groups:
    """Return the canonical groups of several, each disjoint and above the one before."""
    if not parts:
        return empty()
    return fold(Groups(*(np.concatenate(columns) for columns in zip(*parts))))


def fold(groups: Groups) -> Groups:
    """Return the canonical (greedy) form of ordered, disjoint, possibly touching groups.

    The result is what BP-34's rule gives on the maximal sequences of the same set, so equal
    sets have equal groups. O(groups), sequences inside a group are not visited.
    """
    if groups.first.size == 0 or (groups.first.size == 1 and _is_canonical(groups)):
        return groups
    groups = _merge_touching(_flatten_dense(groups))
    if groups.first.size == 1:
        return groups
    return _group(groups)


def _is_canonical(groups: Groups) -> bool:
    """Whether a single group can stay as it is."""
    first, last, size, period = (int(column[0]) for column in groups)
    return period == 0 if last == first else size < period <= INT32_MAX


def _flatten_dense(groups: Groups) -> Groups:
    """Make one long sequence of groups whose sequences touch; undo ungroupable periods."""
    dense = (groups.period == groups.size) & (groups.last > groups.first)
    if dense.any():
        groups = Groups(
            groups.first,
            np.where(dense, groups.first, groups.last),
            np.where(dense, groups.ends - groups.first, groups.size),
            np.where(dense, 0, groups.period),
        )
    far = groups.period > INT32_MAX
    if far.any():
        starts, ends = sequences(groups.take(far))
        apart = Groups(starts, starts, ends - starts, np.zeros_like(starts))
        both = (np.concatenate(pair) for pair in zip(groups.take(~far), apart))
        groups = Groups(*both)
        groups = groups.take(np.argsort(groups.first, kind="stable"))
    return groups


def _merge_touching(groups: Groups) -> Groups:
    """Join sequences that meet at a group border, cutting them off longer groups first."""
    ends = groups.ends
    meets = np.flatnonzero(ends[:-1] == groups.first[1:])
    if not meets.size:
        return groups
    if (groups.last > groups.first)[np.concatenate((meets, meets + 1))].any():
        groups = _cut_where_they_meet(groups, meets)
        ends = groups.ends
        meets = np.flatnonzero(ends[:-1] == groups.first[1:])
    # Borders that follow each other are one chain: its first group gets the size of them all.
    apart = np.diff(meets) > 1
    heads = meets[np.concatenate(([True], apart))]
    tails = meets[np.concatenate((apart, [True]))] + 1
    keep = np.ones(ends.size, np.bool_)
    keep[meets + 1] = False
    joined = groups.take(keep)
    at = heads - np.searchsorted(meets, heads)  # so many before it are gone
    joined.size[at] = ends[tails] - groups.first[heads]
    joined.period[at] = 0
    return joined


def _cut_where_they_meet(groups: Groups, meets: npt.NDArray[np.intp]) -> Groups:
    """Split the first and last sequences that meet another group off longer groups."""
    many = groups.last > groups.first
    cut_first, cut_last = np.zeros_like(many), np.zeros_like(many)
    cut_first[meets + 1] = cut_last[meets] = True
    return _cut_ends(groups, many & cut_first, many & cut_last)


def _cut_ends(groups: Groups, cut_first: BoolArray, cut_last: BoolArray) -> Groups:
    """Split off the first and/or last sequence of the marked groups."""
    none = np.zeros_like(groups.first)
    first = groups.first + cut_first * groups.period
    last = groups.last - cut_last * groups.period
    pieces = (
        Groups(groups.first, groups.first, groups.size, none),
        Groups(first, last, groups.size, np.where(last > first, groups.period, 0)),
        Groups(groups.last, groups.last, groups.size, none),
    )
    keep = np.stack((cut_first, first <= last, cut_last), axis=1).ravel()
    return Groups(*(np.stack(columns, axis=1).ravel()[keep] for columns in zip(*pieces)))


class _Transitions(NamedTuple):
    """Steps from one sequence to the next, equal neighbours inside a group counted once.

    A slot says: `weight` steps of distance `distance`, from `before` to `after` (its first
    step), the sequence after it having `size`; `joins` = the greedy rule may take it.
    """

    joins: BoolArray
    distance: Int64Array
    weight: Int64Array
    before: Int64Array
    after: Int64Array
    size: Int64Array


def _transitions(groups: Groups) -> _Transitions:
    distance = groups.first[1:] - groups.last[:-1]
    joins = (groups.size[1:] == groups.size[:-1]) & (groups.size[1:] <= INT32_MAX)
    joins &= distance <= INT32_MAX
    steps = groups.counts - 1
    between = _Transitions(
        joins, distance, np.ones_like(distance), groups.last[:-1], groups.first[1:], groups.size[1:]
    )
    if not steps.any():
        return between
    within = _Transitions(
        np.ones(steps.size, np.bool_),
        groups.period,
        steps,
        groups.first,
        groups.first + groups.period,
        groups.size,
    )
    columns: list[Any] = []
    for inner, outer in zip(within, between):
        column = np.empty(inner.size + outer.size, inner.dtype)
        column[0::2], column[1::2] = inner, outer
        columns.append(column)
    keep = columns[2] > 0  # the weights
    return _Transitions(*(column[keep] for column in columns))


def _group(groups: Groups) -> Groups:
    """Apply the greedy rule to groups that neither touch nor overlap."""
    return _grouped(groups, _transitions(groups))[0]


def _grouped(groups: Groups, slots: _Transitions) -> tuple[Groups, npt.NDArray[np.intp]]:
    """Return what the greedy rule makes of groups, and behind which slot each begins."""
    closes = np.flatnonzero(_closing(slots))
    first = np.concatenate((groups.first[:1], slots.after[closes]))
    last = np.concatenate((slots.before[closes], groups.last[-1:]))
    size = np.concatenate((groups.size[:1], slots.size[closes]))
    # The period is the step after the border: the rest of the same slot, or the next slot.
    step = np.concatenate(([0], np.where(slots.weight[closes] > 1, closes, closes + 1)))
    period = slots.distance[np.minimum(step, slots.distance.size - 1)]
    made = Groups(first, last, size, np.where(last > first, period, 0))
    return made, np.concatenate(([0], closes + 1))


def _closing(slots: _Transitions) -> BoolArray:
    """Return which slots begin with a step that no group takes.

    Cut the steps into stretches of equal (joins, distance). Inside a stretch that joins, all
    steps are taken, except the first where it is already used up: the step right after a
    group's last sequence is that group's border. One bit per stretch says so: cleared by a
    stretch that does not join, set by one of two steps or more, flipped by one of one step.
    """
    change = slots.joins[1:] != slots.joins[:-1]
    change |= slots.joins[1:] & (slots.distance[1:] != slots.distance[:-1])
    opens = np.flatnonzero(np.concatenate(([True], change)))
    joins = slots.joins[opens]
    single = np.add.reduceat(slots.weight, opens) == 1
    flips = joins & single
    resets = np.where(flips, 0, np.arange(1, opens.size + 1))
    since = np.maximum.accumulate(resets)
    set_by = np.concatenate(([False], joins & ~single))[since]
    flipped = np.concatenate(([0], np.cumsum(flips)))
    used_after = set_by ^ ((flipped[1:] - flipped[since]) % 2 == 1)
    used_before = np.concatenate(([False], used_after[:-1]))
    closing = ~slots.joins
    closing[opens] |= used_before
    return closing
