"""Union, intersection and difference of sequence groups, in O(groups) where stripes are regular.

Both operands are cut at every border of either, so that on each stretch an operand is absent,
solid or periodic (`patterns`). On all but two kinds of stretch the answer is again one pattern:

* two periods that differ, or
* equal periods whose answer has two sequences per period (they cannot stand in one group).

There the answer repeats after the least common multiple of the periods. A stretch that holds
it twice is answered for one such window: if that is one regular stripe, so is the stretch, and
else the window's groups are repeated. On other stretches one operand, the one with fewer
sequences, is taken apart. (Any two sequences of one size are a group, so long periods are
common and cheap to take apart.) What would have to be written is counted before it is: the
canonical form of such an answer is in sequences, and two groups can ask for 2^60 of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.grouping import fold
from bkstore.availability.patterns import Operation, Pattern, answer_of, emit, merged, pattern_of
from bkstore.availability.sequence_groups import Groups, first_sequences, refuse_above, sequences
from bkstore.ids import Int64Array

_WORTH = 1 << 12
"""Sequences from which looking for a window costs less than taking them apart."""

_AT_A_TIME = 1 << 18
"""Sequences taken apart at a time: what is in between takes some 20 times their memory."""


def combine(a: Groups, b: Groups, operation: Operation) -> Groups:
    """Return the canonical groups of ``a & b``, ``a | b`` or ``a - b``.

    O(groups x log groups); on stretches where the two patterns do not fit, O(sequences) of the
    operand that has fewer, or of the answer. Raises `InvalidArgument`, before it allocates, if
    these are more than `MOST_SEQUENCES`.
    """
    quick = _trivial(a, b, operation)
    return fold(pieces(a, b, operation)) if quick is None else quick


def pieces(a: Groups, b: Groups, operation: Operation) -> Groups:
    """Return the answer as ordered, disjoint groups that `fold` would make canonical.

    Where the two operands say something, no piece reaches over the first or the end of any of
    their groups: sets that lie side by side on one axis stay apart.
    """
    quick = _trivial(a, b, operation)
    if quick is not None:
        return quick
    # Four ascending runs: the stable sort knows runs, and is up to 20 times as fast here.
    borders = np.sort(np.concatenate((a.first, a.ends, b.first, b.ends)), kind="stable")
    borders = borders[np.concatenate(([True], borders[1:] != borders[:-1]))]
    lo, hi = borders[:-1], borders[1:]
    left, right = pattern_of(a, lo), pattern_of(b, lo)
    answer, split = answer_of(left, right, operation)
    parts = [emit(answer, lo, hi, ~split)]
    if split.any():
        unlike = left.take(split), right.take(split)
        parts += _Unlike(*unlike, lo[split], hi[split], operation).parts()
    return merged(parts)


def _trivial(a: Groups, b: Groups, operation: Operation) -> Groups | None:
    if not a.first.size:
        return b if operation == "or" else a
    if not b.first.size:
        return b if operation == "and" else a
    return None


class _Unlike(NamedTuple):
    """Stretches on which both operands are periodic and the answer is not one pattern."""

    a: Pattern
    b: Pattern
    lo: Int64Array
    hi: Int64Array
    operation: Operation

    @property
    def longer(self) -> Int64Array:
        """The longer of the two periods."""
        return np.maximum(self.a.period, self.b.period)

    def parts(self) -> Iterator[Groups]:
        """Yield the answer as disjoint groups, in any order."""
        apart = (self.hi - self.lo) // self.longer + 1
        many = np.flatnonzero(apart > _WORTH).tolist()
        spans = {at: span for at in many if (span := self._window(at))}
        windows = list(spans)
        apart[windows] = [span // int(self.longer[at]) + 1 for at, span in spans.items()]
        written = sum(apart.tolist())
        refuse_above(written)
        yield from self._taken_apart(np.delete(np.arange(apart.size), windows))
        for at, span in spans.items():
            for part in self._repeated(at, span, written):
                written += part.first.size
                yield part

    def _window(self, at: int) -> int:
        """Return after how many ids the answer repeats; 0 if it does not do so twice."""
        span = lcm(int(self.a.period[at]), int(self.b.period[at]))
        return span if 2 * span <= int(self.hi[at] - self.lo[at]) else 0

    def _repeated(self, at: int, span: int, written: int) -> Iterator[Groups]:
        """Yield the answer of one stretch from that of its first window."""
        lo, hi = int(self.lo[at]), int(self.hi[at])
        window = self._within(at, lo, lo + span)
        if not window.first.size:
            return
        regular = _regular(window, lo, span)
        if regular is not None:
            yield emit(regular, self.lo[[at]], self.hi[[at]], np.ones(1, np.bool_))
            return
        times, rest = divmod(hi - lo, span)
        refuse_above(written + times * window.first.size)
        shift = np.repeat(np.arange(times, dtype=np.int64) * span, window.first.size)
        first, last, size, period = (np.tile(column, times) for column in window)
        yield Groups(first + shift, last + shift, size, period)
        if rest:
            yield self._within(at, hi - rest, hi)

    def _within(self, at: int, lo: int, hi: int) -> Groups:
        """Return the answer of one stretch for lo..hi only, in canonical form."""
        part = self._replace(lo=self.lo.copy(), hi=self.hi.copy())
        part.lo[at], part.hi[at] = lo, hi
        return fold(merged(list(part._taken_apart(np.array([at])))))

    def _taken_apart(self, rows: npt.NDArray[np.intp]) -> Iterator[Groups]:
        """Yield the answer of some stretches, cut so that no part takes too many apart."""
        # Long stretches are cut, then short ones gathered: each part takes about as many apart.
        step = self.longer[rows] * _AT_A_TIME
        cuts = (self.hi - self.lo)[rows] // step + 1
        which = np.repeat(np.arange(rows.size), cuts)
        nth = np.arange(which.size) - np.repeat(np.cumsum(cuts) - cuts, cuts)
        lo = self.lo[rows][which] + nth * step[which]
        hi = lo + np.minimum(self.hi[rows][which] - lo, step[which])
        keep = hi > lo
        which, lo, hi = rows[which[keep]], lo[keep], hi[keep]
        weight = np.cumsum((hi - lo) // self.longer[which] + 1) // _AT_A_TIME
        for some in np.split(np.arange(lo.size), np.flatnonzero(np.diff(weight)) + 1):
            if some.size:
                a, b = self.a.take(which[some]), self.b.take(which[some])
                yield _by_sequence(a, b, lo[some], hi[some], self.operation)


def _by_sequence(
    a: Pattern, b: Pattern, lo: Int64Array, hi: Int64Array, operation: Operation
) -> Groups:
    """Answer stretches with the longer period taken apart into groups of one.

    Then none is left on which both operands are periodic.
    """
    fewer = a.period >= b.period
    left = [_singles(emit(a, lo, hi, fewer)), emit(a, lo, hi, ~fewer)]
    right = [emit(b, lo, hi, fewer), _singles(emit(b, lo, hi, ~fewer))]
    return pieces(merged(left), merged(right), operation)


def _singles(groups: Groups) -> Groups:
    starts, ends = sequences(groups)
    return Groups(starts, starts, ends - starts, np.zeros_like(starts))


def _regular(window: Groups, lo: int, span: int) -> Pattern | None:
    """Return the one pattern that a canonical window repeats as; None if there is none.

    Guessed from the first sequences, of which the window's ends may cut one; then proved.
    """
    # Two neighbours inside the window give size and period; with fewer sequences the window's
    # ends may have cut the one that goes on in the next.
    head = sequences(first_sequences(window, 3))
    starts, ends = (column.tolist() for column in head)
    if len(starts) == 3:
        guesses = [(starts[1], ends[1] - starts[1], starts[2] - starts[1])]
    elif len(starts) == 2:
        second = ends[1] - starts[1]
        guesses = [(starts[1], second, starts[1] - starts[0])]
        guesses.append((starts[1], second + ends[0] - starts[0], span))
    else:
        guesses = [(starts[0], ends[0] - starts[0], span)]
    # A guess is right if it makes the very window, and if the window ends with a period.
    yes, borders = np.ones(1, np.bool_), (np.array([lo]), np.array([lo + span]))
    for guess in guesses:
        phase, size, period = (np.array([value], np.int64) for value in guess)
        pattern = Pattern(size == span, size < span, phase, size, period)
        if span % guess[2] == 0 and guess[1] <= guess[2]:
            made = fold(emit(pattern, *borders, yes))
            if all(np.array_equal(*pair) for pair in zip(made, window)):
                return pattern
    return None
