"""Sets of entry ids as sequence groups: the numpy kernels under `Availability`.

A *sequence* is a maximal run of consecutive ids. A *sequence group* is a row of equally long
sequences at equal distances: first sequence start, last sequence start, sequence size,
sequence period (0 when the group is one sequence). `Groups` holds the four as int64 columns.

Two facts carry the module. `fold` turns any ordered, disjoint groups into the one canonical
list that BP-34's greedy rule gives, without visiting the sequences inside a group. `combine`
(in `bkstore.availability.algebra`) works on stretches of ids in which both operands are
regular. So costs are in groups, not in entries, as long as the input is striped.

The greedy rule (BP-34): walk the sequences; a group of one takes the next sequence if the
sizes are equal, and the distance becomes the period; a longer group takes it only if size and
distance both match; otherwise the group closes and the sequence opens the next one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array

__all__ = [
    "BLOCK",
    "INT32_MAX",
    "Groups",
    "clip",
    "compact",
    "contains",
    "count",
    "empty",
    "expand",
    "fold",
    "from_ids",
    "from_mask",
    "from_runs",
    "join",
    "presence",
    "sequences",
]

BLOCK = 1 << 16
"""Ids handled at a time: a few arrays of this length fit a second-level cache."""

_PROBE = 1024
"""Ids or slots that a stripe is guessed from."""

_LONG = 256
"""Ids a group has on average where handling groups one by one pays."""

_NARROW = 32

INT32_MAX = 2**31 - 1
"""Sizes and periods are i32 on disk; a longer one is never grouped."""

BoolArray = npt.NDArray[np.bool_]


class Groups(NamedTuple):
    """Sequence groups as four int64 columns of equal length, ascending and disjoint."""

    first: Int64Array
    last: Int64Array
    size: Int64Array
    period: Int64Array

    @property
    def ends(self) -> Int64Array:
        """One past the last id of each group."""
        return self.last + self.size

    @property
    def counts(self) -> Int64Array:
        """How many sequences each group has."""
        return (self.last - self.first) // np.maximum(self.period, 1) + 1

    def take(self, which: npt.NDArray[np.intp] | BoolArray) -> Groups:
        """Return the groups that an index or mask array selects."""
        return Groups(*(column[which] for column in self))


def empty() -> Groups:
    """Return no groups."""
    none = np.empty(0, np.int64)
    return Groups(none, none, none, none)


def from_runs(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return canonical groups for ordered, disjoint half-open runs. O(runs)."""
    return fold(Groups(starts, starts, ends - starts, np.zeros_like(starts)))


def from_ids(ids: Int64Array) -> Groups:
    """Return canonical groups for entry ids, sorted or not, duplicates allowed.

    One pass over sorted ids; sorts first when it must. Works in blocks that stay in the
    processor's cache: fresh memory for whole-array temporaries costs more than the work.
    """
    whole = _regular_ids(ids) if ids.size > BLOCK else None
    if whole is not None:
        return fold(whole)
    parts: list[Groups] = []
    for at in range(0, ids.size, BLOCK):
        block = ids[at : at + BLOCK]
        if at and block[0] <= ids[at - 1]:
            if block[0] < ids[at - 1]:
                return from_ids(np.sort(ids))
            block = block[np.searchsorted(block, block[0], "right") :]  # a cut duplicate
        regular = _regular_ids(block)
        if regular is not None:
            parts.append(regular)
            continue
        steps = np.diff(block)
        if steps.size and int(steps.min()) < 0:
            return from_ids(np.sort(ids))
        if block.size:
            parts.append(_from_block(block, steps))
    return join(parts)


def _from_block(ids: Int64Array, steps: Int64Array) -> Groups:
    breaks = np.flatnonzero(steps > 1)
    starts = np.concatenate((ids[:1], ids[breaks + 1]))
    return compact(starts, np.concatenate((ids[breaks], ids[-1:])) + 1)


def _regular_ids(ids: Int64Array) -> Groups | None:
    """Return ids that are one stripe (or one run) as rows that `fold` can take; None if they
    are not, or do not ascend. Size and period are guessed from the first ids, then proved with
    one comparison; a lost entry is mostly noticed by the last id, before that.
    """
    if ids.size < 2:
        return None
    probe = ids[:_PROBE]
    breaks = np.flatnonzero(probe[1:] - probe[:-1] > 1)[:2] + 1
    head, second = breaks.tolist() if breaks.size == 2 else (0, 1)
    size = second - head
    start, period = int(ids[head]), int(ids[second]) - int(ids[head])
    count = ids.size - head
    if int(ids[-1]) != start + (count - 1) // size * period + (count - 1) % size:
        return None
    # No step inside the first two sequences is above 1, so these two say that each is 1.
    if int(ids[second - 1]) - start != size - 1:
        return None
    if head and int(ids[head - 1]) - int(ids[0]) != head - 1:
        return None
    if period < size or not _repeats(ids[head:], size, period):
        return None
    return _stripe(int(ids[0]), head, start, count, size, period)


def _repeats(ids: Int64Array, size: int, period: int) -> bool:
    """Return whether each id is `period` above the one `size` places before it."""
    for at in range(size, ids.size, BLOCK):
        upper = ids[at : at + BLOCK]
        if not (upper - ids[at - size : at - size + upper.size] == period).all():
            return False
    return True


def _stripe(
    head_first: int, head_count: int, start: int, count: int, size: int, period: int
) -> Groups:
    """Return a cut first sequence, a stripe of `count` ids from `start` on, and what is left
    of its last sequence, as rows that `fold` can take.
    """
    whole, rest = divmod(count, size)
    final = start + whole * period
    rows = [
        (head_first, head_first, head_count, 0),
        (start, final - period, size, period if whole > 1 else 0),
        (final, final, rest, 0),
    ]
    kept = [row for row, ids in zip(rows, (head_count, whole, rest)) if ids]
    return Groups(*np.array(kept, np.int64).T)


def compact(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return ordered half-open runs as groups that `fold` can take: three rows if they are
    regular (a cut first run, a stripe, a cut last run), else a row a run. O(runs).
    """
    sizes = ends - starts
    if starts.size > 4:
        period = starts[2] - starts[1]
        inner = slice(1, -1)
        if (sizes[inner] == sizes[1]).all() and (np.diff(starts[inner]) == period).all():
            rows = (
                (starts[0], starts[0], sizes[0], 0),
                (starts[1], starts[-2], sizes[1], period),
                (starts[-1], starts[-1], sizes[-1], 0),
            )
            return Groups(*np.array(rows, np.int64).T)
    return Groups(starts, starts, sizes, np.zeros_like(starts))


def join(parts: list[Groups]) -> Groups:
    """Return the canonical groups of several, each disjoint and above the one before."""
    if not parts:
        return empty()
    return fold(Groups(*(np.concatenate(columns) for columns in zip(*parts))))


def from_mask(mask: BoolArray, base: int = 0) -> tuple[Int64Array, Int64Array]:
    """Return half-open runs (starts, ends) of the set positions of `mask`, plus `base`.

    O(len(mask)) bytes of work; ids inside a run are never made.
    """
    if mask.size == 0:
        none = np.empty(0, np.int64)
        return none, none
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + (base + 1)
    parts = ([base] if mask[0] else [], edges, [base + mask.size] if mask[-1] else [])
    edges = np.concatenate([np.asarray(part, np.int64) for part in parts])
    return edges[0::2], edges[1::2]


def presence(mask: BoolArray, base: int = 0) -> Groups:
    """Return the set positions of `mask`, plus `base`, as groups that `fold` can take.

    A full mask and a stripe cost two passes over its bytes, anything else `from_mask`.
    """
    found = int(np.count_nonzero(mask))
    if found == mask.size and found:
        return _stripe(base, 0, base, found, found, 0)
    regular = _regular_mask(mask, base)
    return compact(*from_mask(mask, base)) if regular is None else regular


def _regular_mask(mask: BoolArray, base: int) -> Groups | None:
    """Return a mask that is one stripe as rows; None if it is not. Guessed, then proved."""
    probe = mask[:_PROBE]
    edges = (np.flatnonzero(probe[1:] != probe[:-1])[:4] + 1).tolist()
    head = edges.pop(0) if edges and mask[0] else 0
    if len(edges) < 3:
        return None
    start, end, following = edges[:3]
    size, period = end - start, following - start
    if not (mask[period:] == mask[:-period]).all():
        return None
    periods, rest = divmod(mask.size - start, period)
    count = periods * size + min(rest, size)
    return _stripe(base, head, base + start, count, size, period)


def sequences(groups: Groups) -> tuple[Int64Array, Int64Array]:
    """Return every sequence as half-open runs (starts, ends). O(sequences)."""
    counts = groups.counts
    if not counts.size or int(counts.max()) == 1:
        return groups.first, groups.ends
    starts = np.repeat(groups.first, counts) + _ramp(counts) * np.repeat(groups.period, counts)
    return starts, starts + np.repeat(groups.size, counts)


def expand(groups: Groups) -> Int64Array:
    """Return every entry id, ascending. O(entries); fast where groups are long."""
    total = count(groups)
    if groups.first.size * _LONG <= total:
        return _expand_long(groups, total)
    starts, ends = sequences(groups)
    sizes = ends - starts
    ids = np.arange(total, dtype=np.int64)
    ids += np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return ids


def _expand_long(groups: Groups, total: int) -> Int64Array:
    """Return every entry id, group by group; a narrow stripe is written column by column."""
    ids, at = np.empty(total, np.int64), 0
    columns = (groups.first, groups.size, groups.period, groups.counts)
    for first, size, period, n in zip(*(column.tolist() for column in columns)):
        block = ids[at : at + n * size].reshape(n, size)
        starts = np.arange(n, dtype=np.int64) * period + first
        if size < _NARROW:
            for nth in range(size):
                np.add(starts, nth, out=block[:, nth])
        else:
            np.add(starts[:, None], np.arange(size, dtype=np.int64), out=block)
        at += n * size
    return ids


def _ramp(counts: Int64Array) -> Int64Array:
    """Return 0..count-1 for each count, one after the other."""
    total = int(counts.sum())
    return np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


def count(groups: Groups) -> int:
    """Return the number of entries. O(groups)."""
    return int((groups.counts * groups.size).sum())


def contains(groups: Groups, ids: Int64Array) -> BoolArray:
    """Return for each id whether a group holds it. O(ids x log groups)."""
    if groups.first.size == 0 or ids.size == 0:
        return np.zeros(ids.size, np.bool_)
    at = np.searchsorted(groups.first, ids, "right") - 1
    found = at >= 0
    at = np.maximum(at, 0)
    offset = ids - groups.first[at]
    inside = found & (offset < (groups.ends - groups.first)[at])
    period = groups.period[at]
    phase = np.where(period > 0, offset % np.maximum(period, 1), offset)
    result: BoolArray = inside & (phase < groups.size[at])
    return result


def clip(groups: Groups, lo: Int64Array, hi: Int64Array) -> Groups:
    """Return group i restricted to [lo[i], hi[i]), as disjoint ascending pieces. O(groups).

    `lo` and `hi` must lie inside the group's extent. A group yields at most three pieces:
    a cut first sequence, the whole ones, a cut last sequence.
    """
    period = np.maximum(groups.period, groups.ends - groups.first)
    period = np.where(groups.period > 0, groups.period, period)
    into = (lo - groups.first) % period
    # Distances from lo, not ids: near 2^63 an id plus a size would overflow.
    span = hi - lo
    head = np.minimum(groups.size - into, span)
    has_head = (into > 0) & (head > 0)
    whole = np.where(into > 0, period - into, 0)
    final = whole + (span - 1 - whole) // period * period
    tail_cut = (final >= whole) & (groups.size > span - final)
    last = np.where(tail_cut, final - period, final)
    has_whole = last >= whole
    none = np.zeros_like(lo)
    pieces = (
        Groups(lo, lo, head, none),
        Groups(lo + whole, lo + last, groups.size, np.where(last > whole, period, 0)),
        Groups(lo + final, lo + final, span - final, none),
    )
    keep = np.stack((has_head, has_whole, tail_cut), axis=1).ravel()
    return Groups(*(np.stack(columns, axis=1).ravel()[keep] for columns in zip(*pieces)))


def fold(groups: Groups) -> Groups:
    """Return the canonical (greedy) form of ordered, disjoint, possibly touching groups.

    The result is what BP-34's rule gives on the maximal sequences of the same set, so equal
    sets have equal groups. O(groups), sequences inside a group are not visited.
    """
    if groups.first.size == 0:
        return groups
    groups = _merge_touching(_flatten_dense(groups))
    if groups.first.size == 1:
        return groups
    return _group(groups)


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
    if int(groups.period.max()) > INT32_MAX:
        starts, ends = sequences(groups)
        groups = Groups(starts, starts, ends - starts, np.zeros_like(starts))
    return groups


def _merge_touching(groups: Groups) -> Groups:
    """Join sequences that meet at a group border, cutting them off longer groups first."""
    touch = groups.ends[:-1] == groups.first[1:]
    if not touch.any():
        return groups
    many = groups.last > groups.first
    cut_first = many & np.concatenate(([False], touch))
    cut_last = many & np.concatenate((touch, [False]))
    if cut_first.any() or cut_last.any():
        groups = _cut_ends(groups, cut_first, cut_last)
        touch = groups.ends[:-1] == groups.first[1:]
    opens = np.flatnonzero(np.concatenate(([True], ~touch)))
    closes = np.concatenate((opens[1:], [groups.first.size])) - 1
    chained = closes > opens
    return Groups(
        groups.first[opens],
        np.where(chained, groups.first[opens], groups.last[opens]),
        np.where(chained, groups.ends[closes] - groups.first[opens], groups.size[opens]),
        np.where(chained, 0, groups.period[opens]),
    )


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
    slots = _transitions(groups)
    closes = np.flatnonzero(_closing(slots))
    first = np.concatenate((groups.first[:1], slots.after[closes]))
    last = np.concatenate((slots.before[closes], groups.last[-1:]))
    size = np.concatenate((groups.size[:1], slots.size[closes]))
    # The period is the step after the border: the rest of the same slot, or the next slot.
    step = np.concatenate(([0], np.where(slots.weight[closes] > 1, closes, closes + 1)))
    period = slots.distance[np.minimum(step, slots.distance.size - 1)]
    return Groups(first, last, size, np.where(last > first, period, 0))


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
