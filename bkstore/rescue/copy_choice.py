"""The choice among the copies of an entry: verified ones first, then the content of most copies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.rescue.disks.copies import UNVERIFIED, Copies

_CLASS_BITS = ~np.int64(UNVERIFIED - 1)
"""The bits of a rank that state whether a copy is verified, unverified or damaged."""


def rank_class(rank: Int64Array) -> Int64Array:
    """Return `VERIFIED`, `UNVERIFIED` or `DAMAGED` for each rank."""
    return rank & _CLASS_BITS


def find_differing(copies: Copies) -> npt.NDArray[np.bool_]:
    """Return which copies differ from the first copy of their entry, bool[n]. Only copies of one
    class are compared: both verified, or both not verifiable. Damaged copies never differ."""
    if not copies.entry_id.size:
        return np.zeros(0, np.bool_)
    # Compare each copy with the first copy of its entry.
    is_first = copies.first_of_entries()
    first_row = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    differs = copies.content != copies.content[first_row]
    differs |= copies.size != copies.size[first_row]
    differs &= rank_class(copies.rank) == rank_class(copies.rank[first_row])
    result: npt.NDArray[np.bool_] = differs & copies.is_readable
    return result


def order_by_choice(copies: Copies) -> Copies:
    """Return the copies by entry, the copy to use first, then those to try if it cannot be read.

    `copies` are sorted by entry and falling rank. Where readable copies of one class differ, those
    with the most frequent content come first; then the rank decides: a copy that the index names,
    then one in an entry log. O(n), and a sort of the entries with differing copies.

    >>> from bkstore.ids import LedgerId
    >>> copies = Copies(
    ...     LedgerId(0, 7),
    ...     entry_id=np.array([5, 5, 5]),
    ...     rank=np.array([11, 9, 9]),
    ...     location=np.array([1 << 40, 2 << 40, 3 << 40]),
    ...     size=np.array([60, 60, 60]),
    ...     content=np.array([1, 2, 2]),
    ... )
    >>> order_by_choice(copies).content.tolist()
    [2, 2, 1]
    """
    differs = find_differing(copies)
    if not differs.any():
        return copies
    # Sort all copies of the entries in conflict again; `lexsort` takes its last key first.
    in_conflict = np.isin(copies.entry_id, copies.entry_id[differs])
    rows = np.flatnonzero(in_conflict)
    part = copies.where(rows)
    votes = _count_equal(part)
    order = np.lexsort((part.location, -part.rank, -votes, -rank_class(part.rank), part.entry_id))
    # The entries of these rows keep their places; all other rows stay as they are.
    new_order = np.arange(copies.entry_id.size)
    new_order[rows] = rows[order]
    return copies.where(new_order)


def _count_equal(copies: Copies) -> Int64Array:
    """Return for each copy how many copies of its entry and class are equal to it, itself included,
    int64[n]."""
    # Sort by all keys: equal copies are then adjacent, and form a group.
    keys = (copies.size, copies.content, rank_class(copies.rank), copies.entry_id)
    order = np.lexsort(keys)
    begins_group = np.ones(order.size, np.bool_)
    begins_group[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    group_number = np.cumsum(begins_group) - 1
    # Give each copy, in its original row, the size of its group.
    counts = np.empty(order.size, np.int64)
    counts[order] = np.bincount(group_number)[group_number]
    return counts
