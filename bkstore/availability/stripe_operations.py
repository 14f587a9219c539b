"""Set operations on stretches of ids where each operand has one pattern: empty, solid or periodic.
The result is not always a single pattern: `combine_patterns` reports where it is not."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import (
    BoolArray,
    Groups,
    clip,
    merge_groups,
    single_sequences,
)
from bkstore.ids import Int64Array

SetOperation = Literal["and", "or", "sub"]


class Pattern(NamedTuple):
    """The pattern of one operand on each stretch: phase, size and period matter if periodic."""

    solid: BoolArray
    periodic: BoolArray
    phase: Int64Array
    size: Int64Array
    period: Int64Array

    def take(self, selection: npt.NDArray[np.intp] | BoolArray) -> Pattern:
        """Return the stretches that an index or mask array selects."""
        return Pattern._make(column[selection] for column in self)


def find_patterns(groups: Groups, starts: Int64Array) -> Pattern:
    """Return the patterns of groups on the stretches from `starts` on, which cross no border."""
    index = np.searchsorted(groups.first, starts, "right") - 1
    group = groups.take(np.maximum(index, 0))
    inside = (index >= 0) & (starts < group.ends)
    multi = inside & (group.last > group.first)
    return Pattern(inside & ~multi, multi, group.first, group.size, np.maximum(group.period, 1))


def combine_patterns(a: Pattern, b: Pattern, operation: SetOperation) -> tuple[Pattern, BoolArray]:
    """Return the pattern of the result on each stretch, and where it is not a single pattern."""
    if operation == "or":  # a | b is the complement of (not a) & (not b)
        inner, split = combine_patterns(_complement(a), _complement(b), "and")
        return _complement(inner), split
    if operation == "sub":
        return combine_patterns(a, _complement(b), "and")
    both = a.periodic & b.periodic
    overlap, split = _intersect_arcs(a, b)
    use_a = a.periodic & b.solid
    conditions = (both, use_a)
    answer = Pattern(
        (a.solid & b.solid) | (both & overlap.solid),
        use_a | (a.solid & b.periodic) | (both & overlap.periodic),
        np.select(conditions, (overlap.phase, a.phase), b.phase),
        np.select(conditions, (overlap.size, a.size), b.size),
        np.select(conditions, (overlap.period, a.period), b.period),
    )
    return answer, both & split


def _complement(pattern: Pattern) -> Pattern:
    return Pattern(
        ~pattern.solid & ~pattern.periodic,
        pattern.periodic,
        pattern.phase + pattern.size,
        pattern.period - pattern.size,
        pattern.period,
    )


def _intersect_arcs(a: Pattern, b: Pattern) -> tuple[Pattern, BoolArray]:
    """Return the overlap of two arcs on a circle of one period, and where it is not one arc. From
    a's start, a is [0, a.size); b is [shift, shift + b.size) and may wrap: up to two arcs."""
    shift = (b.phase - a.phase) % a.period
    ahead = np.minimum(a.size, shift + b.size) - shift
    wrapped = np.minimum(a.size, shift + b.size - a.period)
    use_ahead = ahead > 0
    size = np.where(use_ahead, ahead, np.maximum(wrapped, 0))
    phase = a.phase + np.where(use_ahead, shift, 0)
    split = (a.period != b.period) | (use_ahead & (wrapped > 0))
    false = np.zeros_like(a.solid)
    return Pattern(false, size > 0, phase, size, a.period), split


def groups_of_pattern(pattern: Pattern, lo: Int64Array, hi: Int64Array, where: BoolArray) -> Groups:
    """Return the pattern as groups restricted to the stretches in `where`, in order."""
    solid, periodic = where & pattern.solid, where & pattern.periodic
    runs = single_sequences(lo[solid], hi[solid])
    if not periodic.any():
        return runs
    stripe, lo, hi = pattern.take(periodic), lo[periodic], hi[periodic]
    first = lo - (lo - stripe.phase) % stripe.period
    last = first + (hi - 1 - first) // stripe.period * stripe.period
    stripes = clip(Groups(first, last, stripe.size, stripe.period), lo, hi)
    return merge_groups([runs, stripes]) if runs.first.size else stripes
