"""Sets of entry ids as sequence groups: the representation under `Availability`, and reading it.

A *sequence* is a maximal run of consecutive ids. A *sequence group* is a row of equally long
sequences at equal distances: first sequence start, last sequence start, sequence size,
sequence period (0 when the group is one sequence). `Groups` holds the four as int64 columns.
Beside this module: `grouping` makes the canonical form, `from_entries` gets groups from ids and
masks, `set_operations` combines two sets, `codec` has the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

_LONG = 256
"""Ids a group has on average where handling groups one by one pays."""

_NARROW = 32

INT32_MAX = 2**31 - 1
"""Sizes and periods are i32 on disk; a longer one is never grouped."""

MOST_SEQUENCES = 2**24
"""Sequences that one call writes out of groups: 88 bytes from outside can say 2^61 of them."""

_GROUPS_AT_A_TIME = 4096

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
        if not self.period.any():  # a division costs ten times this look
            return np.ones_like(self.first)
        return (self.last - self.first) // np.maximum(self.period, 1) + 1

    def take(self, which: npt.NDArray[np.intp] | BoolArray) -> Groups:
        """Return the groups that an index or mask array selects."""
        return Groups(*(column[which] for column in self))


def empty() -> Groups:
    """Return no groups."""
    none = np.empty(0, np.int64)
    return Groups(none, none, none, none)


def refuse_above(sequences: int, advice: str = "") -> None:
    """Raise `InvalidArgument` for more than `MOST_SEQUENCES` that must stand one by one."""
    if sequences > MOST_SEQUENCES:
        raise InvalidArgument(
            f"{sequences} sequences would have to be written one by one, at most "
            f"{MOST_SEQUENCES} are{advice}"
        )


def sequence_count(groups: Groups) -> int:
    """Return the number of sequences. O(groups)."""
    return int(groups.counts.sum())


def iterate(groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield every sequence as a half-open (start, end), in the order of the groups; lazy."""
    for at in range(0, groups.first.size, _GROUPS_AT_A_TIME):
        some = (column[at : at + _GROUPS_AT_A_TIME].tolist() for column in groups)
        for first, last, size, period in zip(*some):
            for start in range(first, last + 1, period or 1):
                yield start, start + size


def first_sequences(groups: Groups, limit: int) -> Groups:
    """Return groups of the lowest `limit` sequences only. O(groups)."""
    upto = np.cumsum(groups.counts)
    if not upto.size or int(upto[-1]) <= limit:
        return groups
    kept = groups.take(np.arange(int(np.searchsorted(upto, limit, "left")) + 1))
    too_many = int(upto[kept.first.size - 1]) - limit
    if limit == 0:
        return empty()
    last = kept.last.copy()
    last[-1] -= too_many * kept.period[-1]
    return kept._replace(last=last)


def sequences(groups: Groups, advice: str = "") -> tuple[Int64Array, Int64Array]:
    """Return every sequence as half-open runs (starts, ends). O(sequences).

    Raises `InvalidArgument` if they are `MOST_SEQUENCES` more than the groups.
    """
    counts = groups.counts
    if not counts.size or int(counts.max()) == 1:
        return groups.first, groups.ends
    if (total := int(counts.sum())) - counts.size > MOST_SEQUENCES:
        refuse_above(total, advice)
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
    return clip_rows(groups, lo, hi)[0]


def clip_rows(groups: Groups, lo: Int64Array, hi: Int64Array) -> tuple[Groups, Int64Array]:
    """Return `clip`'s pieces, and for each the number of the group that it comes from."""
    # A group of one sequence counts as a stripe whose period no extent reaches.
    period = np.maximum(groups.period, groups.ends - groups.first)
    period = np.where(groups.period > 0, groups.period, period)
    into = (lo - groups.first) % period
    # Distances from lo, not ids: near 2^63 an id plus a size would overflow.
    span = hi - lo
    # `lo` may lie inside a sequence: what is left of that one is the head.
    head = np.minimum(groups.size - into, span)
    has_head = (into > 0) & (head > 0)
    # Whole sequences from the next start on; the last one may be cut by `hi`.
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
    rows = np.repeat(np.arange(lo.size), 3)[keep]
    return Groups(*(np.stack(columns, axis=1).ravel()[keep] for columns in zip(*pieces))), rows
