"""Sequence groups from sorted ids and from presence masks, at the speed of memory.

Both ways in guess a stripe from the first ids or slots and prove it with one comparison, so
that a regular ledger costs one pass; what is irregular is taken apart run by run. The rows
made here are ordered and disjoint, not canonical: `grouping.fold` and `join` make them so.
"""

from __future__ import annotations

import numpy as np

from bkstore.availability.grouping import fold, join
from bkstore.availability.sequence_groups import BoolArray, Groups
from bkstore.ids import Int64Array

BLOCK = 1 << 16
"""Ids handled at a time: a few arrays of this length fit a second-level cache."""

_PROBE = 1024
"""Ids or slots that a stripe is guessed from."""


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
    return _compact(starts, np.concatenate((ids[breaks], ids[-1:])) + 1)


def _regular_ids(ids: Int64Array) -> Groups | None:
    """Return ids that are one stripe (or one run) as rows that `fold` can take; None if they
    are not, or do not ascend. Size and period are guessed from the first ids, then proved with
    one comparison; a lost entry is mostly noticed by the last id, before that.
    """
    if ids.size < 2:
        return None
    # The first two gaps give size and period; what stands before the first is a cut sequence.
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


def _compact(starts: Int64Array, ends: Int64Array) -> Groups:
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


def runs_of_mask(mask: BoolArray, base: int = 0) -> tuple[Int64Array, Int64Array]:
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

    A full mask and a stripe cost two passes over its bytes, anything else run by run.
    """
    found = int(np.count_nonzero(mask))
    if found == mask.size and found:
        return _stripe(base, 0, base, found, found, 0)
    regular = _regular_mask(mask, base)
    return _compact(*runs_of_mask(mask, base)) if regular is None else regular


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
