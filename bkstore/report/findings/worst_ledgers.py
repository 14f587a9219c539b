"""The worst ledgers: which entries lack replicas, and on which bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, unsigned_order
from bkstore.report.findings.affected_entries import describe_entries
from bkstore.report.findings.health_classes import (
    DURABILITY_CLASSES,
    HEALTH_CLASSES,
    category_ranks,
    class_ranks,
)
from bkstore.report.findings.table_columns import Tables, id_pairs, number_column
from bkstore.report.html.value_formats import CATEGORY_WORDS, counted, join_names, ledger_name

if TYPE_CHECKING:
    import pyarrow as pa


_MAX_BOOKIES = 4


class Risk(NamedTuple):
    """A ledger at risk: its name, category, the entries as text, the bookies lacking them, and the
    topic that it belongs to, if known."""

    name: str
    category: str
    entries: str
    bookies: tuple[str, ...]
    owner: str = ""

    @property
    def category_words(self) -> str:
        """The page's words for the category."""
        return CATEGORY_WORDS[self.category]

    @property
    def bookie_names(self) -> str:
        """The first bookies as a list in a sentence."""
        return join_names(self.bookies, _MAX_BOOKIES)


def worst_ledgers(tables: Tables, max_ledgers: int) -> list[Risk]:
    """Return the ledgers with the worst losses, by category, then by missing replicas.

    Uses `violations`, or without them `ledger_health`, which has no entry ids.
    """
    if "violations" not in tables:
        return worst_by_health(tables, max_ledgers)
    # Keep rows of categories of missing replicas (rank 0 is the worst), then find each ledger's
    # worst rank and sum of missing replicas.
    table = tables["violations"]
    rank = category_ranks(table)
    is_missing_some = rank < len(DURABILITY_CLASSES)
    table, rank = table.filter(is_missing_some), rank[is_missing_some]
    ledgers, ledger_of_row = _number_ledgers(table)
    worst_rank = np.full(len(ledgers), len(DURABILITY_CLASSES), np.int64)
    np.minimum.at(worst_rank, ledger_of_row, rank)
    missing = np.zeros(len(ledgers), np.float64)  # the sum of 64-bit counts may exceed 64 bits
    np.add.at(missing, ledger_of_row, number_column(table, "missing_entries"))
    chosen = np.lexsort((-missing, worst_rank))[:max_ledgers]  # ties by id
    return [
        _describe_violations(
            table.take(np.flatnonzero(ledger_of_row == ledger)),
            DURABILITY_CLASSES[worst_rank[ledger]],
            tables,
        )
        for ledger in chosen.tolist()
    ]


def _describe_violations(rows: pa.Table, category: str, tables: Tables) -> Risk:
    """Return the risk of one ledger from its violations, one row per bookie and segment."""
    columns = ["scope_id", "ledger_id", "bookie", "missing_entries", "missing", "missing_groups"]
    violations = rows.select(columns).to_pylist()
    name = ledger_name(violations[0]["scope_id"], violations[0]["ledger_id"])
    bookies = sorted({row["bookie"] for row in violations if row["bookie"] is not None})
    is_name_long = len(name) >= 32  # a qualified name
    entries = describe_entries(violations, category, tables.get("ledger_health"), is_name_long)
    return Risk(name, category, entries, tuple(bookies))


def worst_by_health(tables: Tables, max_ledgers: int) -> list[Risk]:
    """Return the worst ledgers of `ledger_health`, with the number of missing replicas."""
    if "ledger_health" not in tables:
        return []
    table = tables["ledger_health"]
    classes, missing = class_ranks(table), number_column(table, "replicas_missing")
    order = np.lexsort((-missing, classes))
    chosen = order[classes[order] < len(DURABILITY_CLASSES)][:max_ledgers]
    return [
        Risk(
            ledger_name(row["scope_id"], row["ledger_id"]),
            HEALTH_CLASSES[classes[index]],
            counted(row["replicas_missing"] or 0, "missing replica"),
            bookies=(),
        )
        for index, row in zip(chosen.tolist(), table.take(chosen).to_pylist())
    ]


def worst_holes(table: pa.Table, max_ledgers: int) -> list[Risk]:
    """Return the ledgers with the most holes, summed over bookies: the likeliest losses."""
    ledgers, ledger_of_row = _number_ledgers(table)
    hole_counts = np.zeros(len(ledgers), np.float64)  # the sum of 64-bit counts may exceed 64 bits
    np.add.at(hole_counts, ledger_of_row, number_column(table, "holes"))
    chosen = np.argsort(-hole_counts, kind="stable")[:max_ledgers].tolist()
    rows_of_chosen = (np.flatnonzero(ledger_of_row == ledger) for ledger in chosen)
    return [_describe_holes(table.take(rows).to_pylist()) for rows in rows_of_chosen]


def _number_ledgers(table: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Return the distinct ledger ids of a table in id order, and for each row its index there."""
    ledgers, ledger_of_row = np.unique(id_pairs(table), axis=0, return_inverse=True)
    # `np.unique` sorts ids as signed numbers: bring them into unsigned order, and the indexes too.
    order = unsigned_order(ledgers[:, 0], ledgers[:, 1])
    unsigned_index = np.empty(len(ledgers), np.int64)
    unsigned_index[order] = np.arange(len(ledgers))
    return ledgers[order], unsigned_index[ledger_of_row.reshape(-1)]


def _describe_holes(rows: list[dict[str, Any]]) -> Risk:
    """Return a ledger's risk from its rows of `holes`, one per bookie."""
    # Several bookies may lack the same entry: their sum is of replicas.
    noun = ("replica", "replicas") if len(rows) > 1 else ("entry", "entries")
    holes = sum(row["holes"] or 0 for row in rows)
    off_stripe = sum(row["off_stripe"] or 0 for row in rows)
    text = f"{counted(holes, *noun)} absent"
    if off_stripe:
        text += f" and {counted(off_stripe, *noun)} off the stripe"
    first_entry = min(row["first_entry"] for row in rows)
    last_entry = max(row["last_entry"] for row in rows)
    name = ledger_name(rows[0]["scope_id"], rows[0]["ledger_id"])
    bookies = sorted({row["bookie"] for row in rows})
    return Risk(name, "holes", f"{text} between {first_entry} and {last_entry}", tuple(bookies))
