"""The worst ledgers: which entries lack replicas, and on which bookies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, unsigned_order
from bkstore.report.findings.key_figures import (
    DURABILITY_CLASSES,
    HEALTH_CLASSES,
    category_ranks,
    health_classes,
    number_column,
)
from bkstore.report.html.value_formats import counted, format_count, ledger_name, ranges_text

if TYPE_CHECKING:
    import pyarrow as pa


class Risk(NamedTuple):
    """A ledger at risk: its name, category, the entries as text, and the bookies lacking them."""

    name: str
    category: str
    entries: str
    bookies: tuple[str, ...]


def worst_ledgers(tables: Mapping[str, pa.Table], max_ledgers: int) -> list[Risk]:
    """Return the ledgers with the worst losses, by category, then by missing replicas.

    Uses `violations`, or without them `ledger_health`, which has no entry ids.
    """
    if "violations" not in tables:
        return worst_by_health(tables, max_ledgers)
    table = tables["violations"]
    rank = category_ranks(table)
    table = table.take(np.flatnonzero(rank < len(DURABILITY_CLASSES)))
    rank = rank[rank < len(DURABILITY_CLASSES)]
    ledgers, rows = _by_ledger(table)
    worst = np.full(len(ledgers), len(DURABILITY_CLASSES), np.int64)
    np.minimum.at(worst, rows, rank)
    missing = np.zeros(len(ledgers), np.float64)  # a sum of counts below 2^63 each
    np.add.at(missing, rows, number_column(table, "missing_entries"))
    chosen = np.lexsort((-missing, worst))[:max_ledgers]  # ties by id
    return [
        _risk(table.take(np.flatnonzero(rows == index)), DURABILITY_CLASSES[worst[index]], tables)
        for index in chosen.tolist()
    ]


def _risk(rows: pa.Table, category: str, tables: Mapping[str, pa.Table]) -> Risk:
    """Return the risk of one ledger from its violations, one row per bookie and segment."""
    replicas = rows.select(
        ["scope_id", "ledger_id", "bookie", "missing_entries", "missing", "missing_groups"]
    ).to_pylist()
    first = replicas[0]
    bookies = tuple(sorted({row["bookie"] for row in replicas if row["bookie"] is not None}))
    name = ledger_name(first["scope_id"], first["ledger_id"])
    if any(row["missing"] is None for row in replicas):
        return Risk(name, category, _describe_bounds(replicas), bookies)
    missing_ranges = [row["missing"] for row in replicas if row["missing"]]
    ranges = np.array(
        [entry_range for row_ranges in missing_ranges for entry_range in row_ranges], np.int64
    ).reshape(-1, 2)
    min_missing = _min_missing_replicas(category, first, tables.get("ledger_health"))
    entry_ranges = covered_at_least(ranges, min_missing)
    if not len(entry_ranges):  # an audit may count unanswered replicas as lost, without a row here
        entry_ranges = covered_at_least(ranges, 1)
    total = sum((entry_ranges[:, 1] - entry_ranges[:, 0] + 1).tolist())
    noun = "entry" if total == 1 else "entries"
    count_text = "" if total == 1 else f"{format_count(total)} "
    max_ranges = 3 if len(entry_ranges) < 4 else 2 if len(name) < 32 else 1  # must fit one line
    entries_text = f"{count_text}{noun}: {ranges_text(entry_ranges.tolist(), max_ranges)}"
    return Risk(name, category, entries_text, bookies)


def _describe_bounds(replicas: list[dict[str, Any]]) -> str:
    """Return a text with the bounds of the missing entries, if they are too many to list."""
    groups = [group for row in replicas for group in row["missing_groups"]]
    low, high = min(group[0] for group in groups), max(group[1] + group[2] - 1 for group in groups)
    replica_count = sum(row["missing_entries"] for row in replicas)
    return f"{counted(replica_count, 'replica')} of entries between {low} and {high}"


def _min_missing_replicas(
    category: str, ledger_row: dict[str, Any], ledger_health: pa.Table | None
) -> int:
    """Return how many replicas of an entry the category implies are missing; 1 if unknown."""
    if ledger_health is None:
        return 1
    is_this_ledger = (number_column(ledger_health, "scope_id") == ledger_row["scope_id"]) & (
        number_column(ledger_health, "ledger_id") == ledger_row["ledger_id"]
    )
    matching_rows = np.flatnonzero(is_this_ledger)
    if not len(matching_rows):
        return 1
    write_quorum = int(number_column(ledger_health, "write_quorum_size")[matching_rows[0]])
    ack_quorum = int(number_column(ledger_health, "ack_quorum_size")[matching_rows[0]])
    return {"no_replica": write_quorum, "below_ack_quorum": write_quorum - ack_quorum + 1}.get(
        category, 1
    )


def covered_at_least(ranges: Int64Array, min_count: int) -> Int64Array:
    """Return the inclusive id ranges that lie in at least `min_count` of n ranges. O(n log n).

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
    inside = np.concatenate([[False], depth >= min_count])
    changes = boundaries[np.flatnonzero(inside[1:] != inside[:-1])]
    return np.stack([changes[::2], changes[1::2] - 1], axis=1)


def worst_by_health(tables: Mapping[str, pa.Table], max_ledgers: int) -> list[Risk]:
    """Return the worst ledgers of `ledger_health`, with the number of missing replicas."""
    if "ledger_health" not in tables:
        return []
    table = tables["ledger_health"]
    classes, missing = health_classes(table), number_column(table, "replicas_missing")
    order = np.lexsort((-missing, classes))
    chosen = order[classes[order] < len(DURABILITY_CLASSES)][:max_ledgers]
    return [
        Risk(
            ledger_name(row["scope_id"], row["ledger_id"]),
            HEALTH_CLASSES[classes[index]],
            counted(row["replicas_missing"] or 0, "missing replica"),
            (),
        )
        for index, row in zip(chosen.tolist(), table.take(chosen).to_pylist())
    ]


def worst_holes(table: pa.Table, max_ledgers: int) -> list[Risk]:
    """Return the ledgers with the most holes, each once, the nearest to losses without metadata."""
    ledgers, rows = _by_ledger(table)
    holes = number_column(table, "holes")
    sums = np.zeros(len(ledgers), np.float64)  # a sum of counts below 2^63 each
    np.add.at(sums, rows, holes)
    chosen = np.argsort(-sums, kind="stable")[:max_ledgers]
    return [
        _hole_risk(table.take(np.flatnonzero(rows == index)).to_pylist())
        for index in chosen.tolist()
    ]


def _by_ledger(table: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Return the distinct ledger ids of a table in id order, and for each row its index there."""
    ids = np.stack([number_column(table, "scope_id"), number_column(table, "ledger_id")], axis=1)
    ledgers, rows = np.unique(ids, axis=0, return_inverse=True)
    order = unsigned_order(ledgers[:, 0], ledgers[:, 1])
    index_of_ledger = np.empty(len(ledgers), np.int64)
    index_of_ledger[order] = np.arange(len(ledgers))
    return ledgers[order], index_of_ledger[rows.reshape(-1)]


def _hole_risk(rows: list[dict[str, Any]]) -> Risk:
    first, noun = rows[0], ("replica", "replicas") if len(rows) > 1 else ("entry", "entries")
    hole_count, off_stripe_count = (
        sum(row[name] or 0 for row in rows) for name in ("holes", "off_stripe")
    )
    parts = [f"{counted(hole_count, *noun)} absent"]
    parts += [f"{counted(off_stripe_count, *noun)} off the stripe"] if off_stripe_count else []
    low, high = min(row["first_entry"] for row in rows), max(row["last_entry"] for row in rows)
    name = ledger_name(first["scope_id"], first["ledger_id"])
    words = f"{' and '.join(parts)} between {low} and {high}"
    return Risk(name, "holes", words, tuple(sorted({row["bookie"] for row in rows})))
