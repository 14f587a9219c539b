"""Explains why the number of ledgers in the metadata differs from that on bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.report.findings.health_classes import HEALTH_CLASSES, class_ranks
from bkstore.report.findings.table_columns import Tables, id_pairs, number_column
from bkstore.report.html.value_formats import counted, join_clauses

if TYPE_CHECKING:
    import pyarrow as pa


def explain_ledger_counts(tables: Tables) -> list[str]:
    """Return sentences on how many ledgers the metadata list and how those on bookies differ.

    Returns none without `ledger_health`. Cost: a sort of the ledgers of both tables.
    """
    if "ledger_health" not in tables:
        return []
    health = tables["ledger_health"]
    listed_ledgers = counted(health.num_rows, "ledger")
    bookie_table = tables.get("bytes_by_ledger", tables.get("sequences"))
    if bookie_table is None:
        return [f"The metadata list {listed_ledgers}."]
    bookie_ids = np.unique(id_pairs(bookie_table), axis=0)
    metadata_ids = id_pairs(health)
    absent = ~_is_among(metadata_ids, bookie_ids)
    # Those of the bookies, less those that the metadata have too.
    unknown = int(len(bookie_ids) - (len(metadata_ids) - absent.sum()))
    if not unknown and not absent.any():
        pronoun = "it" if health.num_rows == 1 else "each of them"
        return [f"The metadata list {listed_ledgers}; bookies have {pronoun}."]
    on_bookies = f"{len(bookie_ids):,}"
    clauses = [f"the metadata list {listed_ledgers}, the bookies have {on_bookies}"]
    if unknown:
        words = counted(unknown, "is on bookies only (an orphan)", "are on bookies only (orphans)")
        clauses.append(words)
    if absent.any():
        words = counted(int(absent.sum()), "is in the metadata only", "are in the metadata only")
        clauses.append(f"{words} ({_why_absent(health, absent)})")
    return [join_clauses(clauses)]


def _why_absent(health: pa.Table, absent: npt.NDArray[np.bool_]) -> str:
    """Return how many of the absent ledgers should be there, are empty, or are not judged."""
    unjudged = absent & (class_ranks(health) == HEALTH_CLASSES.index("not_judged"))
    empty = absent & ~unjudged & (number_column(health, "replicas_due") == 0)
    expected = absent & ~unjudged & ~empty
    groups = [(expected, "should be there"), (empty, "without entries"), (unjudged, "not judged")]
    reasons = [(int(ledgers.sum()), reason) for ledgers, reason in groups if ledgers.any()]
    if len(reasons) == 1:
        return reasons[0][1]
    return ", ".join(f"{number:,} {reason}" for number, reason in reasons)


def unindexed_ledgers_note(tables: Tables) -> list[str]:
    """Return a sentence about ledgers that are counted although no index has an entry of them, or
    an empty list."""
    if "bytes_by_ledger" not in tables:
        return []
    table = tables["bytes_by_ledger"]
    indexed, stored = number_column(table, "replicas") > 0, number_column(table, "bytes") > 0
    in_logs, empty = int((~indexed & stored).sum()), int((~indexed & ~stored).sum())
    clauses = []
    if in_logs:
        have = counted(in_logs, "has", "have")
        clauses.append(f"{have} records in entry logs and no entry in an index")
    if empty:
        clauses.append(f"{counted(empty, 'has', 'have')} no entries")
    return [f"Of {counted(table.num_rows, 'ledger')}, {' and '.join(clauses)}."] if clauses else []


def _is_among(ids: Int64Array, others: Int64Array) -> npt.NDArray[np.bool_]:
    """Return for each id pair whether it is among `others`, which are distinct."""
    # Equal pairs of both lists get the same index: mark those of `others`, then look up `ids`.
    distinct_ids, rows = np.unique(np.concatenate([others, ids]), axis=0, return_inverse=True)
    of_others, of_ids = np.split(rows.reshape(-1), [len(others)])
    is_other = np.zeros(len(distinct_ids), np.bool_)
    is_other[of_others] = True
    return is_other[of_ids]
