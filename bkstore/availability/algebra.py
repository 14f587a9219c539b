"""Union, intersection and difference of sequence groups, in O(groups) where stripes are regular.

Both operands are cut at every border of either, so that on each stretch an operand is absent,
solid or periodic. On all but two kinds of stretch the answer is again one pattern:

* two periods that differ, or
* equal periods whose answer has two sequences per period (they cannot stand in one group),

and only on those stretches one operand, the one with fewer sequences, is taken apart. (Any two
sequences of one size are a group, so long periods are common and cheap to take apart.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from bkstore.availability.grouping import fold
from bkstore.availability.sequences import BoolArray, Groups, clip, sequences
from bkstore.ids import Int64Array

__all__ = ["Operation", "combine", "pieces"]

Operation = Literal["and", "or", "sub"]


class _Pattern(NamedTuple):
    """What one operand is on each stretch: solid flags, and phase, size, period if periodic."""

    solid: BoolArray
    periodic: BoolArray
    phase: Int64Array
    size: Int64Array
    period: Int64Array


def combine(a: Groups, b: Groups, operation: Operation) -> Groups:
    """Return the canonical groups of ``a & b``, ``a | b`` or ``a - b``.

    O(groups x log groups); on stretches where the two patterns do not fit, O(sequences) of the
    operand that has fewer.
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
    borders = np.sort(np.concatenate((a.first, a.ends, b.first, b.ends)))
    borders = borders[np.concatenate(([True], borders[1:] != borders[:-1]))]
    lo, hi = borders[:-1], borders[1:]
    left, right = _pattern(a, lo), _pattern(b, lo)
    answer, split = _answer(left, right, operation)
    pieces = [_emit(answer, lo, hi, ~split)]
    if split.any():
        pieces.append(_by_sequence(left, right, lo, hi, split, operation))
    return _merged(pieces)


def _trivial(a: Groups, b: Groups, operation: Operation) -> Groups | None:
    if not a.first.size:
        return b if operation == "or" else a
    if not b.first.size:
        return b if operation == "and" else a
    return None


def _pattern(groups: Groups, lo: Int64Array) -> _Pattern:
    at = np.searchsorted(groups.first, lo, "right") - 1
    safe = np.maximum(at, 0)
    inside = (at >= 0) & (lo < groups.ends[safe])
    period = groups.period[safe]
    many = groups.last[safe] > groups.first[safe]
    return _Pattern(
        inside & ~many, inside & many, groups.first[safe], groups.size[safe], np.maximum(period, 1)
    )


def _answer(a: _Pattern, b: _Pattern, operation: Operation) -> tuple[_Pattern, BoolArray]:
    """Return the answer's pattern on each stretch, and where there is no single one."""
    if operation == "or":  # a | b is the complement of (not a) & (not b)
        inner, split = _answer(_complement(a), _complement(b), "and")
        return _complement(inner), split
    if operation == "sub":
        return _answer(a, _complement(b), "and")
    both = a.periodic & b.periodic
    met, split = _meet(a, b)
    use_a = a.periodic & b.solid
    pick = (both, use_a)
    answer = _Pattern(
        (a.solid & b.solid) | (both & met.solid),
        use_a | (a.solid & b.periodic) | (both & met.periodic),
        np.select(pick, (met.phase, a.phase), b.phase),
        np.select(pick, (met.size, a.size), b.size),
        np.select(pick, (met.period, a.period), b.period),
    )
    return answer, both & split


def _complement(p: _Pattern) -> _Pattern:
    return _Pattern(
        ~p.solid & ~p.periodic, p.periodic, p.phase + p.size, p.period - p.size, p.period
    )


def _meet(a: _Pattern, b: _Pattern) -> tuple[_Pattern, BoolArray]:
    """Return the overlap of two arcs on a circle of one period, seen from a's start.

    a is [0, a.size); b is [shift, shift + b.size) and may wrap, so up to two arcs overlap.
    """
    shift = (b.phase - a.phase) % a.period
    ahead = np.minimum(a.size, shift + b.size) - shift
    wrapped = np.minimum(a.size, shift + b.size - a.period)
    use_ahead = ahead > 0
    size = np.where(use_ahead, ahead, np.maximum(wrapped, 0))
    phase = a.phase + np.where(use_ahead, shift, 0)
    split = (a.period != b.period) | (use_ahead & (wrapped > 0))
    none = np.zeros_like(a.solid)
    return _Pattern(none, size > 0, phase, size, a.period), split


def _emit(p: _Pattern, lo: Int64Array, hi: Int64Array, where: BoolArray) -> Groups:
    """Return the pattern as groups restricted to the stretches in `where`, in order."""
    solid = where & p.solid
    flat = Groups(lo[solid], lo[solid], (hi - lo)[solid], np.zeros(int(solid.sum()), np.int64))
    some = where & p.periodic
    if not some.any():
        return flat
    lo, hi, phase, period = lo[some], hi[some], p.phase[some], p.period[some]
    first = lo - (lo - phase) % period
    last = first + (hi - 1 - first) // period * period
    striped = clip(Groups(first, last, p.size[some], period), lo, hi)
    if not flat.first.size:
        return striped
    merged = Groups(*(np.concatenate(pair) for pair in zip(flat, striped)))
    return merged.take(np.argsort(merged.first, kind="stable"))


def _by_sequence(
    a: _Pattern, b: _Pattern, lo: Int64Array, hi: Int64Array, where: BoolArray, operation: Operation
) -> Groups:
    """Answer the stretches in `where`, the longer period taken apart into groups of one.

    Then no stretch is left on which both operands are periodic.
    """
    fewer = where & (a.period >= b.period)
    left = [_singles(_emit(a, lo, hi, fewer)), _emit(a, lo, hi, where & ~fewer)]
    right = [_emit(b, lo, hi, fewer), _singles(_emit(b, lo, hi, where & ~fewer))]
    return pieces(_merged(left), _merged(right), operation)


def _singles(groups: Groups) -> Groups:
    starts, ends = sequences(groups)
    return Groups(starts, starts, ends - starts, np.zeros_like(starts))


def _merged(pieces: list[Groups]) -> Groups:
    merged = Groups(*(np.concatenate(columns) for columns in zip(*pieces)))
    return merged.take(np.argsort(merged.first, kind="stable"))
