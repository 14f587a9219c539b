"""What a set is on a stretch of ids: nothing, solid or periodic; two of them met, and written.

Under `set_operations`, which cuts two sets into such stretches. One pattern cannot say every
answer: `answer_of` tells where it does not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import BoolArray, Groups, clip
from bkstore.ids import Int64Array

Operation = Literal["and", "or", "sub"]


class Pattern(NamedTuple):
    """What one operand is on each stretch: solid flags, and phase, size, period if periodic."""

    solid: BoolArray
    periodic: BoolArray
    phase: Int64Array
    size: Int64Array
    period: Int64Array

    def take(self, which: npt.NDArray[np.intp] | BoolArray) -> Pattern:
        """Return the stretches that an index or mask array selects."""
        return Pattern(
            self.solid[which],
            self.periodic[which],
            self.phase[which],
            self.size[which],
            self.period[which],
        )


def pattern_of(groups: Groups, lo: Int64Array) -> Pattern:
    """Return what groups are on the stretches that begin at `lo`, cut at all their borders."""
    at = np.searchsorted(groups.first, lo, "right") - 1
    safe = np.maximum(at, 0)
    inside = (at >= 0) & (lo < groups.ends[safe])
    period = groups.period[safe]
    many = groups.last[safe] > groups.first[safe]
    return Pattern(
        inside & ~many, inside & many, groups.first[safe], groups.size[safe], np.maximum(period, 1)
    )


def answer_of(a: Pattern, b: Pattern, operation: Operation) -> tuple[Pattern, BoolArray]:
    """Return the answer's pattern on each stretch, and where there is no single one."""
    if operation == "or":  # a | b is the complement of (not a) & (not b)
        inner, split = answer_of(_complement(a), _complement(b), "and")
        return _complement(inner), split
    if operation == "sub":
        return answer_of(a, _complement(b), "and")
    both = a.periodic & b.periodic
    met, split = _meet(a, b)
    use_a = a.periodic & b.solid
    pick = (both, use_a)
    answer = Pattern(
        (a.solid & b.solid) | (both & met.solid),
        use_a | (a.solid & b.periodic) | (both & met.periodic),
        np.select(pick, (met.phase, a.phase), b.phase),
        np.select(pick, (met.size, a.size), b.size),
        np.select(pick, (met.period, a.period), b.period),
    )
    return answer, both & split


def _complement(p: Pattern) -> Pattern:
    return Pattern(
        ~p.solid & ~p.periodic, p.periodic, p.phase + p.size, p.period - p.size, p.period
    )


def _meet(a: Pattern, b: Pattern) -> tuple[Pattern, BoolArray]:
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
    return Pattern(none, size > 0, phase, size, a.period), split


def emit(p: Pattern, lo: Int64Array, hi: Int64Array, where: BoolArray) -> Groups:
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
    return merged([flat, striped]) if flat.first.size else striped


def merged(pieces: list[Groups]) -> Groups:
    """Return disjoint groups in ascending order."""
    joined = Groups(*(np.concatenate(columns) for columns in zip(*pieces)))
    return joined.take(np.argsort(joined.first, kind="stable"))
