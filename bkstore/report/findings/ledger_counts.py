"""Why two numbers of ledgers on the page differ: those of the metadata, those on bookies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bkstore.report.findings.key_figures import CLASSES, class_of, numbers
from bkstore.report.html.wording import clauses, count, counted

if TYPE_CHECKING:
    import pyarrow as pa

Tables = Mapping[str, "pa.Table"]


def why_counts_differ(tables: Tables) -> list[str]:
    """Return how many ledgers the metadata list and, where others are on bookies, why.

    Sentences, none without `ledger_health`. Cost: a sort of the ledgers of both tables.
    """
    if "ledger_health" not in tables:
        return []
    health = tables["ledger_health"]
    listed = counted(health.num_rows, "ledger")
    held = next((tables[name] for name in ("bytes_by_ledger", "sequences") if name in tables), None)
    if held is None:
        return [f"The metadata list {listed}."]
    here = np.unique(_ids(held), axis=0)
    known = _ids(health)
    absent = ~_inside(known, here)
    unknown = int(len(here) - (len(known) - absent.sum()))
    if not unknown and not absent.any():
        same = "it" if health.num_rows == 1 else "each of them"
        return [f"The metadata list {listed}; bookies have {same}."]
    said = [f"the metadata list {listed}, the bookies have {count(len(here))}"]
    if unknown:
        words = counted(unknown, "is on bookies only (an orphan)", "are on bookies only (orphans)")
        said.append(words)
    if absent.any():
        words = counted(int(absent.sum()), "is in the metadata only", "are in the metadata only")
        said.append(f"{words} ({_why_absent(health, absent)})")
    return [clauses(said)]


def _why_absent(health: pa.Table, absent: npt.NDArray[np.bool_]) -> str:
    """Say of ledgers that no bookie has: how many should be there, are empty, are not judged."""
    unjudged = absent & (class_of(health) == CLASSES.index("not_judged"))
    empty = absent & ~unjudged & (numbers(health, "replicas_due") == 0)
    due = absent & ~unjudged & ~empty
    groups = [(due, "should be there"), (empty, "without entries"), (unjudged, "not judged")]
    found = [(int(each.sum()), said) for each, said in groups if each.any()]
    if len(found) == 1:
        return found[0][1]
    return ", ".join(f"{count(number)} {said}" for number, said in found)


def in_dump_only_logs(tables: Tables) -> list[str]:
    """Return a sentence about ledgers that count, though no index has an entry of them."""
    if "bytes_by_ledger" not in tables:
        return []
    table = tables["bytes_by_ledger"]
    indexed, stored = numbers(table, "replicas") > 0, numbers(table, "bytes") > 0
    logs, empty = int((~indexed & stored).sum()), int((~indexed & ~stored).sum())
    said = []
    if logs:
        has = "has" if logs == 1 else "have"
        said.append(f"{count(logs)} {has} records in entry logs and no entry in an index")
    if empty:
        said.append(f"{count(empty)} {'has' if empty == 1 else 'have'} no entries")
    if not said:
        return []
    return [f"Of {counted(table.num_rows, 'ledger')}, {' and '.join(said)}."]


def _ids(table: pa.Table) -> npt.NDArray[np.int64]:
    return np.stack([numbers(table, "scope_id"), numbers(table, "ledger_id")], axis=1)


def _inside(ids: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each id pair whether it is among others, which are distinct."""
    both, rows = np.unique(np.concatenate([others, ids]), axis=0, return_inverse=True)
    there = np.zeros(len(both), np.bool_)
    rows = rows.reshape(-1)
    there[rows[: len(others)]] = True
    found: npt.NDArray[np.bool_] = there[rows[len(others) :]]
    return found
