"""Sets of entry ids as sequence groups: the representation of `Availability`, and its queries. A
*sequence* is a maximal run of consecutive ids. A *sequence group* is a row of equally long
sequences at equal distances: first sequence start, last sequence start, sequence size, sequence
period (0 when the group is one sequence). `Groups` has the four as int64 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array

_MIN_MEAN_IDS = 256
"""Ids per group, on average, from which a loop over groups is faster than array steps."""

_MIN_WIDE = 32  # sequence size below which columns are filled one by one

INT32_MAX = 2**31 - 1
"""Sizes and periods are i32 on disk; a longer one is never grouped."""

MAX_SEQUENCES = 2**24
"""Sequences that one call lists at most: 88 bytes of input can encode 2^61 of them."""

_CHUNK_GROUPS = 4096

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
        """The number of sequences of each group."""
        if not self.period.any():  # a division takes ten times as long as this test
            return np.ones_like(self.first)
        return (self.last - self.first) // np.maximum(self.period, 1) + 1

    def take(self, selection: npt.NDArray[np.intp] | BoolArray) -> Groups:
        """Return the groups that an index or mask array selects."""
        return Groups(*(column[selection] for column in self))


OwnedGroups = tuple[Groups, Int64Array]
"""The groups of several sets in order, and the owner of each group: the number of its set."""


def empty() -> Groups:
    """Return no groups."""
    none = np.empty(0, np.int64)
    return Groups(none, none, none, none)


def single_sequences(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return half-open runs as groups of one sequence each."""
    return Groups(starts, starts, ends - starts, np.zeros_like(starts))


def ungroup(groups: Groups) -> Groups:
    """Return a group for each sequence. O(sequences). Raises as `list_sequences`."""
    return single_sequences(*list_sequences(groups))


def split_long_periods(groups: Groups) -> Groups:
    """Return groups in which those of a period above i32 are a group for each sequence."""
    too_long = groups.period > INT32_MAX
    if not too_long.any():
        return groups
    return merge_groups([groups.take(~too_long), ungroup(groups.take(too_long))])


def merge_groups(parts: Sequence[Groups]) -> Groups:
    """Return disjoint groups in ascending order."""
    joined = Groups(*(np.concatenate(columns) for columns in zip(*parts)))
    return joined.take(np.argsort(joined.first, kind="stable"))


def interleave(pieces: Sequence[Groups], keep_masks: Sequence[BoolArray]) -> Groups:
    """Return the rows of several equally long `Groups` (the pieces) in turn: row 0 of each piece,
    then row 1 of each, and so on, without the rows that a piece's mask does not keep."""
    keep = np.stack(keep_masks, axis=1).ravel()
    interleaved_columns = (np.stack(columns, axis=1).ravel() for columns in zip(*pieces))
    return Groups(*(column[keep] for column in interleaved_columns))


def check_sequence_count(count: int, advice: str = "") -> None:
    """Raise `InvalidArgument` for more sequences than one call may list, `MAX_SEQUENCES`."""
    if count > MAX_SEQUENCES:
        limit = f"the limit is {MAX_SEQUENCES}{advice}"
        raise InvalidArgument(f"{count} sequences are too many to list one by one, {limit}")


def count_sequences(groups: Groups) -> int:
    """Return the number of sequences. O(groups)."""
    return int(groups.counts.sum())


def iterate_sequences(groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield every sequence as a half-open (start, end), in the order of the groups; lazy."""
    for offset in range(0, groups.first.size, _CHUNK_GROUPS):
        columns = (column[offset : offset + _CHUNK_GROUPS].tolist() for column in groups)
        for first, last, size, period in zip(*columns):
            for start in range(first, last + 1, period or 1):
                yield start, start + size


def take_first_sequences(groups: Groups, limit: int) -> Groups:
    """Return groups of the lowest `limit` sequences only. O(groups)."""
    totals = np.cumsum(groups.counts)
    if not totals.size or int(totals[-1]) <= limit:
        return groups
    if limit == 0:
        return empty()
    # The group that reaches the limit is the last one; drop its sequences past the limit.
    last_group = int(np.searchsorted(totals, limit, "left"))
    lowest = groups.take(np.arange(last_group + 1))
    last = lowest.last.copy()
    last[-1] -= (int(totals[last_group]) - limit) * lowest.period[-1]
    return lowest._replace(last=last)


def list_sequences(groups: Groups, advice: str = "") -> tuple[Int64Array, Int64Array]:
    """Return all sequences as half-open runs (starts, ends). O(sequences). Raises `InvalidArgument`
    if there are over `MAX_SEQUENCES` more sequences than groups; `advice` is the end of its text.
    """
    counts = groups.counts
    if not counts.size or int(counts.max()) == 1:
        return groups.first, groups.ends
    # One sequence a group takes no more memory than the groups, so these are not counted.
    if (total := int(counts.sum())) - counts.size > MAX_SEQUENCES:
        check_sequence_count(total, advice)
    starts = np.repeat(groups.first, counts) + _count_up(counts) * np.repeat(groups.period, counts)
    return starts, starts + np.repeat(groups.size, counts)


def list_entry_ids(groups: Groups) -> Int64Array:
    """Return all entry ids, ascending. O(entries); fast where groups are long."""
    total = count_entries(groups)
    if groups.first.size * _MIN_MEAN_IDS <= total:
        return _expand_by_group(groups, total)
    starts, ends = list_sequences(groups)
    sizes = ends - starts
    ids = np.arange(total, dtype=np.int64)  # the position of each id in the result
    first_positions = np.cumsum(sizes) - sizes  # of each sequence, in the result
    ids += np.repeat(starts - first_positions, sizes)
    return ids


def _expand_by_group(groups: Groups, total: int) -> Int64Array:
    """Return all `total` entry ids, group by group. The ids of a group are a table with a row for
    each sequence; a table of few columns is filled column by column, which is faster."""
    ids, offset = np.empty(total, np.int64), 0
    columns = (groups.first, groups.size, groups.period, groups.counts)
    for first, size, period, count in zip(*(column.tolist() for column in columns)):
        block = ids[offset : offset + count * size].reshape(count, size)  # a row for a sequence
        starts = np.arange(count, dtype=np.int64) * period + first
        if size < _MIN_WIDE:
            for nth in range(size):
                np.add(starts, nth, out=block[:, nth])
        else:
            np.add(starts[:, None], np.arange(size, dtype=np.int64), out=block)
        offset += count * size
    return ids


def _count_up(counts: Int64Array) -> Int64Array:
    """Return 0..count-1 for each count, concatenated."""
    total = int(counts.sum())
    return np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


def count_entries(groups: Groups) -> int:
    """Return the number of entries. O(groups)."""
    return int((groups.counts * groups.size).sum())


def contains(groups: Groups, ids: Int64Array) -> BoolArray:
    """Return bool[n]: whether each id is in a group. O(ids x log groups)."""
    if groups.first.size == 0 or ids.size == 0:
        return np.zeros(ids.size, np.bool_)
    # The group that begins last at or below each id is the only one that can contain it.
    index = np.searchsorted(groups.first, ids, "right") - 1
    has_group = index >= 0
    index = np.maximum(index, 0)
    offset = ids - groups.first[index]
    inside = has_group & (offset < (groups.ends - groups.first)[index])
    # The offset of the id in its sequence; a group of one sequence has period 0.
    period = groups.period[index]
    sequence_offset = np.where(period > 0, offset % np.maximum(period, 1), offset)
    result: BoolArray = inside & (sequence_offset < groups.size[index])
    return result


def clip(groups: Groups, lo: Int64Array, hi: Int64Array) -> Groups:
    """Return group i restricted to [lo[i], hi[i]), as disjoint ascending pieces. O(groups). They
    must be inside the group's extent. At most three: cut, whole and cut sequences."""
    return clip_with_rows(groups, lo, hi)[0]


def clip_with_rows(groups: Groups, lo: Int64Array, hi: Int64Array) -> tuple[Groups, Int64Array]:
    """Return each group i clipped to [lo[i], hi[i]), which is inside of the group's extent, and for
    each resulting group its i. A group becomes up to three: a sequence that `lo` cuts (the head),
    the whole sequences, and one that `hi` cuts (the tail). For example, the sequences 0-2, 5-7,
    10-12 clipped to [1, 12) are a head 1-2, the whole 5-7, and a tail 10-11."""
    # A group of one sequence is treated as a stripe whose period is as long as the sequence.
    extent = groups.ends - groups.first
    period = np.where(groups.period > 0, groups.period, extent)
    # All starts are distances from `lo`, not ids: near 2^63 an id plus a size would overflow.
    length = hi - lo
    # `lo` may be inside a sequence, `skipped` ids after its start: the ids from there on, up to the
    # sequence's end, are the head.
    skipped = (lo - groups.first) % period
    head_size = np.minimum(groups.size - skipped, length)
    has_head = (skipped > 0) & (head_size > 0)
    # Whole sequences begin at the next start. `hi` may cut the last sequence, which is the tail.
    first_start = np.where(skipped > 0, period - skipped, 0)
    last_start = first_start + (length - 1 - first_start) // period * period
    has_tail = (last_start >= first_start) & (groups.size > length - last_start)
    last_whole_start = np.where(has_tail, last_start - period, last_start)
    has_whole = last_whole_start >= first_start
    whole_period = np.where(last_whole_start > first_start, period, 0)
    pieces = (
        single_sequences(lo, lo + head_size),
        Groups(lo + first_start, lo + last_whole_start, groups.size, whole_period),
        single_sequences(lo + last_start, hi),
    )
    rows = np.repeat(np.arange(lo.size), has_head.astype(np.int64) + has_whole + has_tail)
    return interleave(pieces, (has_head, has_whole, has_tail)), rows
