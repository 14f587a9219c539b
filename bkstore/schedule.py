"""Round-robin distribution: which bookies of an ensemble get which entries.

The write set of entry e is the bookie indexes ``(e + w) mod E`` for w = 0 .. W-1 (E: ensemble size,
W: write quorum, A: ack quorum). Source: `RoundRobinDistributionSchedule`, whose single-index forms
cast to 32 bits first and go wrong from entry 2^31 on; ``compat="bookkeeper"`` gives those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bkstore.arguments import check_compat, integer
from bkstore.availability import Availability, Compat
from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import INT32_MAX, Groups, clip
from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array, IntArrayLike, as_entry_ids, check_entry_id


def _check_quorum(ensemble_size: int, write_quorum: int) -> None:
    are_plain_ints = type(ensemble_size) is type(write_quorum) is int  # asked for each entry
    if not (are_plain_ints and 1 <= write_quorum <= ensemble_size <= INT32_MAX):
        checked_size = integer(1, INT32_MAX)("ensemble_size", ensemble_size)
        integer(1, checked_size)("write_quorum", write_quorum)


def write_sets(entry_ids: IntArrayLike, ensemble_size: int, write_quorum: int) -> Int64Array:
    """Return int64[n, W]: for each entry the bookie indexes that store it, in order. O(n W).

    >>> write_sets([0, 1, 2], 3, 2).tolist()
    [[0, 1], [1, 2], [2, 0]]
    """
    _check_quorum(ensemble_size, write_quorum)
    first = as_entry_ids(entry_ids) % ensemble_size
    return (first[:, None] + np.arange(write_quorum)) % ensemble_size


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> list[int]:
    """Return the bookie indexes that store `entry_id`, in order (`getWriteSet`)."""
    _check_quorum(ensemble_size, write_quorum)
    return [(check_entry_id(entry_id) + w) % ensemble_size for w in range(write_quorum)]


def ensemble_set(entry_id: int, ensemble_size: int) -> list[int]:
    """Return all bookie indexes in the order used for `entry_id` (`getEnsembleSet`)."""
    return write_set(entry_id, ensemble_size, ensemble_size)


def bookie_index(
    entry_id: int, nth: int, ensemble_size: int, write_quorum: int, compat: Compat | None = None
) -> int:
    """Return the `nth` bookie index of the write set (`getWriteSetBookieIndex`).

    ``compat="bookkeeper"`` casts ``entry + nth`` to 32 bits first, as the real method does:
    from entry 2^31 on the index is wrong or negative.

    >>> bookie_index(2**31, 0, 3, 2), bookie_index(2**31, 0, 3, 2, compat="bookkeeper")
    (2, -2)
    """
    _check_quorum(ensemble_size, write_quorum)
    if type(nth) is not int or not 0 <= nth < write_quorum:
        nth = integer(0, write_quorum - 1)("nth", nth)
    value = check_entry_id(entry_id) + nth
    if compat is None:
        return value % ensemble_size
    check_compat("compat", compat)
    int32_value = (value + 2**31) % 2**32 - 2**31
    # Java's remainder has the sign of the dividend.
    return int32_value % ensemble_size if int32_value >= 0 else -(-int32_value % ensemble_size)


def has_entry(
    entry_id: int, index: int, ensemble_size: int, write_quorum: int, compat: Compat | None = None
) -> bool:
    """Return whether bookie `index` is in the write set of `entry_id` (`hasEntry`)."""
    return any(
        bookie_index(entry_id, nth, ensemble_size, write_quorum, compat) == index
        for nth in range(write_quorum)
    )


def expected(
    first: int, last: int, bookie_index: int, ensemble_size: int, write_quorum: int
) -> Availability:
    """Return the entries of first..last (inclusive) that bookie `bookie_index` must hold.

    O(1): at most three sequence groups. Source: `getEntriesStripedToTheBookie`, which takes a bit
    per entry. Raises `InvalidArgument` for a negative or reversed range and an invalid index.

    >>> expected(0, 999_997, 1, 3, 2).groups.tolist()
    [[0, 999996, 2, 3]]
    """
    _check_quorum(ensemble_size, write_quorum)
    if not 0 <= bookie_index < ensemble_size:
        raise InvalidArgument(f"bookie index {bookie_index} is outside 0..{ensemble_size - 1}")
    check_entry_id(first)
    check_entry_id(last)
    if last < first:
        raise InvalidArgument(f"last entry {last} is before first entry {first}")
    row = np.array([[first, last, bookie_index, ensemble_size, write_quorum]], np.int64)
    return Availability.from_canonical(canonicalize(expected_many(*row.T)))


def expected_many(
    first: Int64Array,
    last: Int64Array,
    bookie_index: Int64Array,
    ensemble_size: Int64Array,
    write_quorum: Int64Array,
    shift: Int64Array | None = None,
) -> Groups:
    """Return the groups of `expected` for many rows, each moved up by its `shift`; not canonical.

    Rows are int64 columns of equal length; shifted, they must be ascending and disjoint
    (unchecked). At most three groups per row, all inside its range. O(rows).
    """
    shifts = np.zeros_like(first) if shift is None else shift
    range_start, range_end = first + shifts, last + 1 + shifts
    # Of each E consecutive entries the bookie has a run of W: it is the last bookie in the write
    # set of the run's first entry, and the first in that of its last. The stripe begins with the
    # run that starts at or before `first`; `clip` cuts it there.
    has_all = write_quorum == ensemble_size
    first_run_start = (bookie_index - write_quorum + 1) % ensemble_size
    first_start = first - (first - first_run_start) % ensemble_size
    last_start = first_start + (last - first_start) // ensemble_size * ensemble_size
    stripe = Groups(
        np.where(has_all, range_start, first_start + shifts),
        np.where(has_all, range_start, last_start + shifts),
        np.where(has_all, range_end - range_start, write_quorum),
        np.where(has_all, 0, ensemble_size),
    )
    return clip(stripe, range_start, range_end)


def is_covered(answered: Sequence[bool], write_quorum: int, ack_quorum: int) -> bool:
    """Return whether the bookies that answered cover every possible write set (`checkCovered`).
    Covered: among any W neighbors of the ensemble fewer than A did not answer. O(E W).

    >>> is_covered([True, True, False], 2, 2), is_covered([True, False, False], 2, 2)
    (True, False)
    """
    ensemble_size = len(answered)
    _check_quorum(ensemble_size, write_quorum)
    unanswered = [not has_answered for has_answered in answered]
    return all(
        sum(unanswered[(start + w) % ensemble_size] for w in range(write_quorum)) < ack_quorum
        for start in range(ensemble_size)
    )
