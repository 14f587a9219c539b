"""Sequence groups from sorted ids and from presence masks, at the speed of memory. A stripe is
guessed from the first ids or positions and proved with one comparison, so that a regular ledger
costs one pass; irregular input is grouped run by run. The private functions return ordered and
disjoint rows, which `grouping.canonicalize` and `canonicalize_parts` make canonical: equal for
equal sets."""

from __future__ import annotations

import numpy as np

from bkstore.availability.grouping import canonicalize, canonicalize_parts
from bkstore.availability.sequence_groups import BoolArray, Groups, empty, single_sequences
from bkstore.ids import Int64Array, check_entry_id

BLOCK_IDS = 1 << 16
"""Ids in a block: a few arrays of this length fit a second-level cache."""

_PROBE = 1024
"""Ids or positions from which a stripe is guessed."""


def from_ids(ids: Int64Array) -> Groups:
    """Return canonical groups for entry ids, sorted or not, duplicates allowed. One pass over
    sorted ids; sorts others first. Works in blocks that fit the processor's cache: temporaries of
    the whole array cost more than the work."""
    # All ids may be one stripe, which one cheap pass finds out.
    stripe = _match_stripe(ids) if ids.size > BLOCK_IDS else None
    if stripe is not None:
        return canonicalize(stripe)
    groups_of_blocks: list[Groups] = []
    for start in range(0, ids.size, BLOCK_IDS):
        block = ids[start : start + BLOCK_IDS]
        if start and block[0] <= ids[start - 1]:
            if block[0] < ids[start - 1]:
                return from_ids(np.sort(ids))
            # The block begins with duplicates of the last id of the block before: drop them.
            block = block[np.searchsorted(block, block[0], "right") :]
        stripe = _match_stripe(block)
        if stripe is not None:
            groups_of_blocks.append(stripe)
            continue
        differences = np.diff(block)
        if differences.size and int(differences.min()) < 0:
            return from_ids(np.sort(ids))
        if block.size:
            groups_of_blocks.append(_group_block(block, differences))
    return canonicalize_parts(groups_of_blocks)


def from_range(ids: range) -> Groups:
    """Return the ids of a Python `range` as canonical groups. O(1). Raises `InvalidArgument` for
    more than 2^24 ids with a step above int32, as each is a group of its own."""
    if not ids:
        return empty()
    low, high = sorted((check_entry_id(ids[0]), check_entry_id(ids[-1])))
    step = abs(ids.step)
    is_run = step == 1 or low == high  # else one id in each period
    # The columns of `Groups`: first and last sequence start, size, period.
    row = (low, low, high - low + 1, 0) if is_run else (low, high, 1, step)
    return canonicalize(Groups(*np.array([row], np.int64).T))


def _group_block(ids: Int64Array, differences: Int64Array) -> Groups:
    """Group ascending ids of one block, whose steps from one to the next are `differences`."""
    breaks = np.flatnonzero(differences > 1)
    starts = np.concatenate((ids[:1], ids[breaks + 1]))
    return _group_runs(starts, np.concatenate((ids[breaks], ids[-1:])) + 1)


def _match_stripe(ids: Int64Array) -> Groups | None:
    """Return ids that are one stripe (sequences of equal size at equal distances, of which the
    first and the last may be shorter) or one run, as rows for `canonicalize`; None for others."""
    if ids.size < 2:
        return None
    # Guess size and period from the first two gaps. The ids before the first gap are the end of a
    # sequence. Without two gaps the guess is one id in each period; for a run that is period 1.
    probe = ids[:_PROBE]
    breaks = np.flatnonzero(probe[1:] - probe[:-1] > 1)[:2] + 1
    head_count, next_start = breaks.tolist() if breaks.size == 2 else (0, 1)
    size = next_start - head_count
    start, period = int(ids[head_count]), int(ids[next_start]) - int(ids[head_count])
    count = ids.size - head_count
    # Check the last id first: if an id is missing anywhere, it mostly differs from the guess.
    if int(ids[-1]) != start + (count - 1) // size * period + (count - 1) % size:
        return None
    # No step inside the first two sequences is above 1, so their lengths prove that each is 1.
    if int(ids[next_start - 1]) - start != size - 1:
        return None
    if head_count and int(ids[head_count - 1]) - int(ids[0]) != head_count - 1:
        return None
    if period < size or not _is_periodic(ids[head_count:], size, period):
        return None
    return _build_stripe(int(ids[0]), head_count, start, count, size, period)


def _is_periodic(ids: Int64Array, size: int, period: int) -> bool:
    """Return whether each id is `period` above the id `size` positions before it."""
    for start in range(size, ids.size, BLOCK_IDS):
        upper = ids[start : start + BLOCK_IDS]
        if not (upper - ids[start - size : start - size + upper.size] == period).all():
            return False
    return True


def _build_stripe(first: int, head: int, start: int, count: int, size: int, period: int) -> Groups:
    """Return the rows of a stripe for `canonicalize`. It has a shorter first sequence of `head` ids
    from `first` on, then from `start` on `count` ids in sequences of `size` every `period`; what is
    left at its end is a shorter last sequence."""
    sequence_count, tail_count = divmod(count, size)
    tail_first = start + sequence_count * period
    rows = [  # as in `Groups`: first, last, size, period
        (first, first, head, 0),
        (start, tail_first - period, size, period if sequence_count > 1 else 0),
        (tail_first, tail_first, tail_count, 0),
    ]
    id_counts = (head, sequence_count * size, tail_count)
    nonempty_rows = [row for row, id_count in zip(rows, id_counts) if id_count]
    return Groups(*np.array(nonempty_rows, np.int64).T)


def _group_runs(starts: Int64Array, ends: Int64Array) -> Groups:
    """Return ordered half-open runs as rows for `canonicalize`. If all but the first and the last
    have the same size and distance, these are three rows, otherwise one for each run. O(runs)."""
    sizes = ends - starts
    if starts.size > 4:
        # In a stripe only the first and the last run may be shorter.
        inner_starts, inner_sizes = starts[1:-1], sizes[1:-1]
        size, period = inner_sizes[0], inner_starts[1] - inner_starts[0]
        if (inner_sizes == size).all() and (np.diff(inner_starts) == period).all():
            rows = (  # as in `Groups`: first, last, size, period
                (starts[0], starts[0], sizes[0], 0),
                (inner_starts[0], inner_starts[-1], size, period),
                (starts[-1], starts[-1], sizes[-1], 0),
            )
            return Groups(*np.array(rows, np.int64).T)
    return single_sequences(starts, ends)


def ranges_of_mask(mask: BoolArray, base: int = 0) -> tuple[Int64Array, Int64Array]:
    """Return the half-open ranges (starts, ends) of the set positions of `mask`, plus `base`.
    O(len(mask)) bytes of work; ids inside ranges are not listed."""
    if mask.size == 0:
        return empty()[:2]  # two arrays without elements
    # Ranges begin and end in turn where the mask changes; the first may begin at its start, and the
    # last end at its end.
    inner_edges = np.flatnonzero(mask[1:] != mask[:-1]) + (base + 1)
    start_edge = [base] if mask[0] else []
    end_edge = [base + mask.size] if mask[-1] else []
    edges = np.concatenate(
        [np.asarray(part, np.int64) for part in (start_edge, inner_edges, end_edge)]
    )
    return edges[0::2], edges[1::2]


def groups_of_mask(mask: BoolArray, base: int = 0) -> Groups:
    """Return the set positions of `mask`, plus `base`, as groups for `canonicalize`. A full mask
    and a stripe take two passes over its bytes, others are grouped run by run."""
    set_count = int(np.count_nonzero(mask))
    if set_count == mask.size and set_count:
        return single_sequences(np.array([base]), np.array([base + set_count]))
    stripe = _match_mask_stripe(mask, base)
    return _group_runs(*ranges_of_mask(mask, base)) if stripe is None else stripe


def _match_mask_stripe(mask: BoolArray, base: int) -> Groups | None:
    """Return the set positions of a mask that are one stripe, plus `base`, as rows for
    `canonicalize`; None if they are not one."""
    # The first whole sequence and the start of the next give size and period. A sequence at
    # position 0 may have begun before it, so it counts as a shorter first one.
    probe = mask[:_PROBE]
    edges = (np.flatnonzero(probe[1:] != probe[:-1])[:4] + 1).tolist()
    head_count = edges.pop(0) if edges and mask[0] else 0
    if len(edges) < 3:
        return None
    start, end, next_start = edges[:3]
    size, period = end - start, next_start - start
    if not (mask[period:] == mask[:-period]).all():
        return None
    period_count, tail_length = divmod(mask.size - start, period)
    count = period_count * size + min(tail_length, size)
    return _build_stripe(base, head_count, base + start, count, size, period)
