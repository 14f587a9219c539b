"""Which entries of a ledger its category of violation is about: those that enough bookies lack.

Each entry should be on W bookies (the write quorum). All of them lack an entry that has no replica;
at least W - A + 1 lack one below the ack quorum A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries
from bkstore.ids import Int64Array
from bkstore.report.findings.table_columns import id_pairs, number_column
from bkstore.report.html.value_formats import counted

if TYPE_CHECKING:
    import pyarrow as pa


def describe_entries(
    violations: list[dict[str, Any]], category: str, health: pa.Table | None, is_name_long: bool
) -> str:
    """Return the affected entries of a ledger, from its rows of `violations`, as a text.

    `health` has the quorums: without it, entries that any bookie lacks are affected. Fewer ranges
    are listed beside a long name.
    """
    if any(row["missing"] is None for row in violations):
        return _describe_bounds(violations)
    missing = [entry_range for row in violations for entry_range in row["missing"]]
    ranges = np.array(missing, np.int64).reshape(-1, 2)
    affected = covered_at_least(ranges, _min_missing_replicas(category, violations[0], health))
    # None are if an audit counts replicas as lost whose bookie gave no answer and has no row here.
    if not len(affected):
        affected = covered_at_least(ranges, 1)
    entries = Availability.from_ranges(affected)
    max_runs = 2 if is_name_long and entries.range_count > 3 else 5
    return f"{'entry' if len(entries) == 1 else 'entries'} {format_entries(entries, max_runs)}"


def _describe_bounds(violations: list[dict[str, Any]]) -> str:
    """Return a text with the bounds of the missing entries, if they are too many to list."""
    groups = [group for row in violations for group in row["missing_groups"]]
    first_entry = min(first_start for first_start, _, _, _ in groups)
    last_entry = max(last_start + size - 1 for _, last_start, size, _ in groups)
    replicas = sum(row["missing_entries"] for row in violations)
    return f"{counted(replicas, 'replica')} of entries between {first_entry} and {last_entry}"


def _min_missing_replicas(category: str, ledger: dict[str, Any], health: pa.Table | None) -> int:
    """Return how many replicas of an entry the category implies are missing; 1 if unknown."""
    if health is None:
        return 1
    is_ledger = (id_pairs(health) == (ledger["scope_id"], ledger["ledger_id"])).all(axis=1)
    if not is_ledger.any():
        return 1
    write_quorum = int(number_column(health, "write_quorum_size")[is_ledger][0])
    ack_quorum = int(number_column(health, "ack_quorum_size")[is_ledger][0])
    missing = {"no_replica": write_quorum, "below_ack_quorum": write_quorum - ack_quorum + 1}
    return missing.get(category, 1)


def covered_at_least(ranges: Int64Array, min_count: int) -> Int64Array:
    """Return the (first, last) ranges of ids that lie in at least `min_count` of the given ranges,
    int64[n, 2] both. O(n log n).

    >>> covered_at_least(np.array([[0, 9], [5, 12], [13, 13]]), 2).tolist()
    [[5, 9]]
    >>> covered_at_least(np.array([[0, 9], [5, 12], [13, 13]]), 1).tolist()
    [[0, 13]]
    """
    # Add 1 where a range begins and -1 after its end: the running sum is the number of ranges.
    ids = np.concatenate([ranges[:, 0], ranges[:, 1] + 1])
    steps = np.repeat(np.array([1, -1]), len(ranges))
    boundaries, boundary_index = np.unique(ids, return_inverse=True)
    depth = np.cumsum(np.bincount(boundary_index, weights=steps, minlength=len(boundaries)))
    # Boundaries at which the depth rises to `min_count` and falls below it alternate.
    inside = np.concatenate([[False], depth >= min_count])
    changes = boundaries[np.flatnonzero(inside[1:] != inside[:-1])]
    return np.stack([changes[::2], changes[1::2] - 1], axis=1)
