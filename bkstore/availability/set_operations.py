"""Union, intersection and difference of sequence groups, in O(groups) where stripes are regular.

Both operands are split at every border of either: a *stretch* is the ids [lo, hi) between two
adjacent starts or ends of groups of either operand. On each stretch an operand is empty, solid (all
ids) or periodic, and so is the result (`stripe_operations`), on all but two kinds of stretch:

* two periods that differ, or
* equal periods whose result has two sequences per period (one group cannot contain them).

There the result repeats after the least common multiple of the periods. A stretch of at least twice
that length is computed for one such window: if the window is one regular stripe, so is the stretch;
if not, the groups of the window are repeated. On other stretches the operand with fewer sequences
is ungrouped. (Any two sequences of one size are a group, so long periods are common and cheap to
ungroup.) Sequences are counted before they are listed: the canonical form of such a result lists
them, and the result of two groups can have 2^60.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import (
    BoolArray,
    Groups,
    check_sequence_count,
    empty,
    list_sequences,
    merge_groups,
    take_first_sequences,
    ungroup,
)
from bkstore.availability.stripe_operations import (
    Pattern,
    SetOperation,
    combine_patterns,
    find_patterns,
    groups_of_pattern,
)
from bkstore.ids import Int64Array

_MIN_WINDOW = 1 << 12
"""Sequences from which a search for a window costs less than ungrouping."""

_CHUNK_SEQUENCES = 1 << 18
"""Sequences ungrouped at a time: intermediate arrays take some 20 times their memory."""


def combine(a: Groups, b: Groups, operation: SetOperation) -> Groups:
    """Return the canonical groups of ``a & b``, ``a | b`` or ``a - b``. O(groups x log groups);
    where the result is not one pattern, O(sequences) of the operand with fewer, or of the result.
    Raises `InvalidArgument`, before it allocates, above `MAX_SEQUENCES`."""
    simple_result = _combine_empty_or_equal(a, b, operation)
    if simple_result is not None:
        return simple_result
    return canonicalize(combine_uncanonical(a, b, operation))


def combine_uncanonical(a: Groups, b: Groups, operation: SetOperation) -> Groups:
    """Return the result as ordered, disjoint groups, not yet canonical. If no operand is empty, no
    group of the result crosses an end of the operands' groups: so several sets can be combined at
    once by placing them one after another on one axis."""
    simple_result = _combine_empty_or_equal(a, b, operation)
    if simple_result is not None:
        return simple_result
    # Split the ids at each start and end of a group into stretches [lo, hi). A stable sort makes
    # use of the four ascending parts, and is up to 20 times as fast here.
    borders = np.sort(np.concatenate((a.first, a.ends, b.first, b.ends)), kind="stable")
    borders = borders[np.concatenate(([True], borders[1:] != borders[:-1]))]
    lo, hi = borders[:-1], borders[1:]
    # On each stretch an operand has one pattern: all ids, none, or sequences at equal distances.
    # Mostly the result has one too. Where it has not, operands are listed sequence by sequence.
    left, right = find_patterns(a, lo), find_patterns(b, lo)
    combined, is_split = combine_patterns(left, right, operation)
    results = [groups_of_pattern(combined, lo, hi, ~is_split)]
    if is_split.any():
        patterns = left.take(is_split), right.take(is_split)
        irregular = _IrregularStretches(*patterns, lo[is_split], hi[is_split], operation)
        results += irregular.iterate_groups()
    return merge_groups(results)


def _combine_empty_or_equal(a: Groups, b: Groups, operation: SetOperation) -> Groups | None:
    """Return the result if one operand is empty or both have the same groups, else None."""
    if not a.first.size:
        return b if operation == "or" else a
    if not b.first.size:
        return b if operation == "and" else a
    if all(np.array_equal(*columns) for columns in zip(a, b)):
        return empty() if operation == "sub" else a
    return None


class _IrregularStretches(NamedTuple):
    """Stretches on which both operands are periodic and the result of `operation` is not one
    pattern: patterns `a` and `b` on the ids starts..ends-1, a row for each stretch. The result
    repeats after a window of ids as long as the least common multiple of both periods."""

    a: Pattern
    b: Pattern
    starts: Int64Array
    ends: Int64Array
    operation: SetOperation

    @property
    def longer_period(self) -> Int64Array:
        """The longer of the operands' periods on each stretch."""
        return np.maximum(self.a.period, self.b.period)

    def iterate_groups(self) -> Iterator[Groups]:
        """Yield the result as groups, in no order. `InvalidArgument` for too many to be listed."""
        # How many sequences are listed on each stretch: those of the operand that has fewer.
        periods = self.longer_period
        counts = (self.ends - self.starts) // periods + 1
        long_stretches = np.flatnonzero(counts > _MIN_WINDOW).tolist()
        # On a long stretch the result repeats after a window, of which alone sequences are listed.
        # All are counted before the work, so that too many raise at once.
        windows = {row: length for row in long_stretches if (length := self._window_length(row))}
        repeating = list(windows)
        counts[repeating] = [length // int(periods[row]) + 1 for row, length in windows.items()]
        total = sum(counts.tolist())
        check_sequence_count(total)
        yield from self._combine_in_chunks(np.delete(np.arange(counts.size), repeating))
        for row, length in windows.items():
            for part in self._repeat_window(row, length, total):
                total += part.first.size
                yield part

    def _window_length(self, stretch: int) -> int:
        """Return after how many ids the result repeats; 0 if the stretch is not twice that long."""
        length = lcm(int(self.a.period[stretch]), int(self.b.period[stretch]))
        return length if 2 * length <= int(self.ends[stretch] - self.starts[stretch]) else 0

    def _repeat_window(self, stretch: int, length: int, total: int) -> Iterator[Groups]:
        """Yield the result on one stretch, on which it repeats every `length` ids, from the result
        on the first such window. `total` is how many sequences are listed so far."""
        lo, hi = int(self.starts[stretch]), int(self.ends[stretch])
        window = self._combine_part(stretch, lo, lo + length)
        if not window.first.size:
            return
        pattern = _match_pattern(window, lo, length)
        if pattern is not None:  # one stripe: so is the stretch
            borders = self.starts[[stretch]], self.ends[[stretch]]
            yield groups_of_pattern(pattern, *borders, np.ones(1, np.bool_))
            return
        repeats, tail_length = divmod(hi - lo, length)
        check_sequence_count(total + repeats * window.first.size)
        shift = np.repeat(np.arange(repeats, dtype=np.int64) * length, window.first.size)
        first, last, size, period = (np.tile(column, repeats) for column in window)
        yield Groups(first + shift, last + shift, size, period)
        if tail_length:
            yield self._combine_part(stretch, hi - tail_length, hi)

    def _combine_part(self, stretch: int, lo: int, hi: int) -> Groups:
        """Return the canonical groups of ``a OPERATION b`` on the ids lo..hi-1, a part of the
        stretch in row `stretch`."""
        # `_combine_in_chunks` takes whole stretches, so narrow this one in a copy.
        narrowed = self._replace(starts=self.starts.copy(), ends=self.ends.copy())
        narrowed.starts[stretch], narrowed.ends[stretch] = lo, hi
        chunks = list(narrowed._combine_in_chunks(np.array([stretch])))
        return canonicalize(merge_groups(chunks))

    def _combine_in_chunks(self, stretches: npt.NDArray[np.intp]) -> Iterator[Groups]:
        """Yield the result on the stretches with these numbers, in chunks of a limited number of
        sequences: a long stretch is cut into pieces, and short ones are gathered."""
        # Cut long stretches into pieces [lo, hi), of at most `step` ids each.
        step = self.longer_period[stretches] * _CHUNK_SEQUENCES
        piece_counts = (self.ends - self.starts)[stretches] // step + 1
        owner = np.repeat(np.arange(stretches.size), piece_counts)  # the stretch of each piece
        first_pieces = np.cumsum(piece_counts) - piece_counts
        nth = np.arange(owner.size) - np.repeat(first_pieces, piece_counts)  # within its stretch
        lo = self.starts[stretches][owner] + nth * step[owner]
        hi = lo + np.minimum(self.ends[stretches][owner] - lo, step[owner])
        keep = hi > lo
        stretch, lo, hi = stretches[owner[keep]], lo[keep], hi[keep]
        # Gather short ones, so that chunks are of similar size.
        chunk = np.cumsum((hi - lo) // self.longer_period[stretch] + 1) // _CHUNK_SEQUENCES
        for rows in np.split(np.arange(lo.size), np.flatnonzero(np.diff(chunk)) + 1):
            if rows.size:
                # List the sequences of the operand with the longer period, as it has fewer. Then
                # on no stretch both are periodic, and the result has a pattern on each.
                a, b = self.a.take(stretch[rows]), self.b.take(stretch[rows])
                ungroups_a = a.period >= b.period
                left = _ungroup_where(ungroups_a, a, lo[rows], hi[rows])
                right = _ungroup_where(~ungroups_a, b, lo[rows], hi[rows])
                yield combine_uncanonical(left, right, self.operation)


def _ungroup_where(where: BoolArray, pattern: Pattern, lo: Int64Array, hi: Int64Array) -> Groups:
    """Return the pattern's groups on the stretches [lo, hi), ungrouped on those in `where`."""
    listed = ungroup(groups_of_pattern(pattern, lo, hi, where))
    return merge_groups([listed, groups_of_pattern(pattern, lo, hi, ~where)])


def _match_pattern(window: Groups, lo: int, length: int) -> Pattern | None:
    """Return the pattern (sequences of one size at one distance) of a stretch on which `window`
    repeats, the canonical groups of the `length` ids from `lo` on; None if it has no single one."""
    # Guess phase (a sequence's start), size and period. The first sequence may be cut by the start
    # of the window; the second and third are whole or at its end. With fewer sequences, the last
    # one may be cut too, and continue in the next window.
    first_sequences = list_sequences(take_first_sequences(window, 3))
    starts, ends = (column.tolist() for column in first_sequences)
    sizes = [end - start for start, end in zip(starts, ends)]
    if len(starts) == 3:
        candidates = [(starts[1], sizes[1], starts[2] - starts[1])]  # each (phase, size, period)
    elif len(starts) == 2:
        two_sequences = (starts[1], sizes[1], starts[1] - starts[0])
        one_cut_sequence = (starts[1], sizes[1] + sizes[0], length)  # it wraps around the window
        candidates = [two_sequences, one_cut_sequence]
    else:
        candidates = [(starts[0], sizes[0], length)]
    # A candidate is right if it gives the same window, and the window is a multiple of the period.
    window_start, window_end = np.array([lo]), np.array([lo + length])
    everywhere = np.ones(1, np.bool_)
    for candidate in candidates:
        phase, size, period = (np.array([value], np.int64) for value in candidate)
        pattern = Pattern(size == length, size < length, phase, size, period)
        if length % period[0] == 0 and size[0] <= period[0]:
            repeated = canonicalize(
                groups_of_pattern(pattern, window_start, window_end, everywhere)
            )
            if all(np.array_equal(*columns) for columns in zip(repeated, window)):
                return pattern
    return None
