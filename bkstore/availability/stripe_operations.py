"""Set operations on stretches of ids where each operand has one pattern: empty, solid or periodic.
A stretch is a range of ids in which no group of an operand begins or ends. The result is not always
a single pattern: `combine_patterns` reports where it is not."""

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
    """The pattern of one operand on each stretch: all ids (`solid`), sequences (`periodic`), which
    are of `size` ids, at `phase` plus or minus multiples of `period`, or none (neither)."""

    solid: BoolArray
    periodic: BoolArray
    phase: Int64Array
    size: Int64Array
    period: Int64Array

    def take(self, selection: npt.NDArray[np.intp] | BoolArray) -> Pattern:
        """Return the stretches that an index or mask array selects."""
        return Pattern._make(column[selection] for column in self)


def find_patterns(groups: Groups, starts: Int64Array) -> Pattern:
    """Return the pattern of `groups` on each stretch of ids: solid (all ids), periodic (sequences
    at equal distances), or neither (no id). Stretches begin at `starts`; none crosses the start or
    end of a group, so that it is inside of one or outside of all."""
    index = np.searchsorted(groups.first, starts, "right") - 1
    group = groups.take(np.maximum(index, 0))
    inside = (index >= 0) & (starts < group.ends)
    periodic = inside & (group.last > group.first)
    solid = inside & ~periodic  # inside a group of one sequence
    period = np.maximum(group.period, 1)  # of a single sequence it is 0, and of no meaning
    return Pattern(solid, periodic, phase=group.first, size=group.size, period=period)


def combine_patterns(a: Pattern, b: Pattern, operation: SetOperation) -> tuple[Pattern, BoolArray]:
    """Return the pattern of ``a OPERATION b`` on each stretch, and on which stretches it is not a
    single pattern (bool[n])."""
    if operation == "or":  # a | b is the complement of (not a) & (not b)
        neither, is_split = combine_patterns(_complement(a), _complement(b), "and")
        return _complement(neither), is_split
    if operation == "sub":  # a - b is a & (not b)
        return combine_patterns(a, _complement(b), "and")
    # "and": where both are periodic, the overlap of their sequences; where only one is periodic and
    # the other solid, that one; where both are solid, all ids.
    both = a.periodic & b.periodic
    overlap, is_split = _intersect_arcs(a, b)
    is_a = a.periodic & b.solid
    conditions = (both, is_a)
    combined = Pattern(
        solid=(a.solid & b.solid) | (both & overlap.solid),
        periodic=is_a | (a.solid & b.periodic) | (both & overlap.periodic),
        phase=np.select(conditions, (overlap.phase, a.phase), b.phase),
        size=np.select(conditions, (overlap.size, a.size), b.size),
        period=np.select(conditions, (overlap.period, a.period), b.period),
    )
    return combined, both & is_split


def _complement(pattern: Pattern) -> Pattern:
    """Return the pattern of the other ids: its sequences are the gaps of `pattern`."""
    is_empty = ~pattern.solid & ~pattern.periodic
    gap_starts, gap_sizes = pattern.phase + pattern.size, pattern.period - pattern.size
    return Pattern(is_empty, pattern.periodic, gap_starts, gap_sizes, pattern.period)


def _intersect_arcs(a: Pattern, b: Pattern) -> tuple[Pattern, BoolArray]:
    """Return the overlap of two periodic patterns of equal period, and where it is not a single
    pattern. Ids modulo the period are a circle, on which the sequences of a pattern are one arc:
    counted from a's start, a is [0, a.size) and b is [shift, shift + b.size). The arc of b may wrap
    around the circle, and then overlap both ends of a: in two arcs, which are no single pattern."""
    shift = (b.phase - a.phase) % a.period
    # The overlap from `shift` on, and that of the part of b that wraps, from a's start on.
    shifted_size = np.minimum(a.size, shift + b.size) - shift
    wrapped_size = np.minimum(a.size, shift + b.size - a.period)
    is_shifted = shifted_size > 0
    size = np.where(is_shifted, shifted_size, np.maximum(wrapped_size, 0))
    phase = a.phase + np.where(is_shifted, shift, 0)
    is_split = (a.period != b.period) | (is_shifted & (wrapped_size > 0))
    never_solid = np.zeros_like(a.solid)
    return Pattern(never_solid, size > 0, phase, size, a.period), is_split


def groups_of_pattern(pattern: Pattern, lo: Int64Array, hi: Int64Array, where: BoolArray) -> Groups:
    """Return the groups of the pattern on those stretches [lo, hi) that `where` selects, in order.
    Each stripe is extended to whole periods around its stretch, then clipped to it."""
    solid, periodic = where & pattern.solid, where & pattern.periodic
    runs = single_sequences(lo[solid], hi[solid])
    if not periodic.any():
        return runs
    stripe, lo, hi = pattern.take(periodic), lo[periodic], hi[periodic]
    first = lo - (lo - stripe.phase) % stripe.period
    last = first + (hi - 1 - first) // stripe.period * stripe.period
    stripes = clip(Groups(first, last, stripe.size, stripe.period), lo, hi)
    return merge_groups([runs, stripes]) if runs.first.size else stripes
