"""The choice among the copies of an entry: verified ones first, then what most copies say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.rescue.disks.copies import UNVERIFIED, Copies

_CLASS_BITS = ~np.int64(UNVERIFIED - 1)
"""Of a rank, those that say whether a copy is verified, unverified or damaged."""


def rank_class(rank: Int64Array) -> Int64Array:
    """Return `VERIFIED`, `UNVERIFIED` or `DAMAGED` for each rank."""
    return rank & _CLASS_BITS


def find_differing(copies: Copies) -> npt.NDArray[np.bool_]:
    """Return which copies differ from the first of their entry although they are as good, bool[n]:
    both verified, or both not verifiable. Of damaged copies none does."""
    if not copies.entry_id.size:
        return np.zeros(0, np.bool_)
    is_first = copies.first_of_entries()
    first_row = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    differs = copies.content != copies.content[first_row]
    differs |= copies.size != copies.size[first_row]
    differs &= rank_class(copies.rank) == rank_class(copies.rank[first_row])
    result: npt.NDArray[np.bool_] = differs & copies.is_readable
    return result


def order_by_choice(copies: Copies) -> Copies:
    """Return the copies in the order in which they are to be used for their entry.

    Given are copies by entry and falling rank. Where readable copies of one class differ, those
    come first whose content most copies have; then the rank decides: a copy that the index names,
    then one in an entry log. O(n), and a sort of the entries with differing copies.

    >>> from bkstore.ids import LedgerId
    >>> columns = ([5, 5, 5], [11, 9, 9], [1 << 32, 2 << 32, 3 << 32], [60] * 3, [1, 2, 2])
    >>> order_by_choice(Copies(LedgerId(0, 7), *map(np.array, columns))).content.tolist()
    [2, 2, 1]
    """
    differs = find_differing(copies)
    if not differs.any():
        return copies
    in_conflict = np.isin(copies.entry_id, copies.entry_id[differs])
    rows = np.flatnonzero(in_conflict)
    part = copies.where(rows)
    votes = _count_equal(part)
    order = np.lexsort((part.location, -part.rank, -votes, -rank_class(part.rank), part.entry_id))
    new_order = np.arange(copies.entry_id.size)
    new_order[rows] = rows[order]
    return copies.where(new_order)


def _count_equal(copies: Copies) -> Int64Array:
    """Return for each copy how many copies of its entry and class say the same, itself included."""
    keys = (copies.size, copies.content, rank_class(copies.rank), copies.entry_id)
    order = np.lexsort(keys)
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    run_number = np.cumsum(is_new) - 1
    counts = np.empty(order.size, np.int64)
    counts[order] = np.bincount(run_number)[run_number]
    return counts
