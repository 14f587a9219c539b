"""The worst ledgers: which entries lack how many replicas, on which bookies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, unsigned_order
from bkstore.report.findings.key_figures import CLASSES, DURABILITY, class_of, numbers, ranks
from bkstore.report.html.wording import count, counted, ledger_name, ranges_text

if TYPE_CHECKING:
    import pyarrow as pa


class Risk(NamedTuple):
    """A ledger in trouble: its name, category, the entries as text, the bookies that lack them."""

    name: str
    category: str
    entries: str
    bookies: tuple[str, ...]


def worst_ledgers(tables: Mapping[str, pa.Table], most: int) -> list[Risk]:
    """Return the ledgers with the worst losses, by category, then by missing replicas.

    From `violations`; without them from `ledger_health`, which knows no entries.
    """
    if "violations" not in tables:
        return bare_ledgers(tables, most)
    table = tables["violations"]
    rank = ranks(table)
    table = table.take(np.flatnonzero(rank < len(DURABILITY)))
    rank = rank[rank < len(DURABILITY)]
    ledgers, rows = _by_ledger(table)
    worst = np.full(len(ledgers), len(DURABILITY), np.int64)
    np.minimum.at(worst, rows, rank)
    missing = np.zeros(len(ledgers), np.float64)  # a sum of counts below 2^63 each
    np.add.at(missing, rows, numbers(table, "missing_entries"))
    chosen = np.lexsort((-missing, worst))[:most]  # ties by id
    return [
        _risk(table.take(np.flatnonzero(rows == at)), DURABILITY[worst[at]], tables)
        for at in chosen.tolist()
    ]


def _risk(rows: pa.Table, category: str, tables: Mapping[str, pa.Table]) -> Risk:
    replicas = rows.select(
        ["scope_id", "ledger_id", "bookie", "missing_entries", "missing", "missing_groups"]
    ).to_pylist()
    first = replicas[0]
    bookies = tuple(sorted({row["bookie"] for row in replicas if row["bookie"] is not None}))
    name = ledger_name(first["scope_id"], first["ledger_id"])
    if any(row["missing"] is None for row in replicas):
        return Risk(name, category, _coarse(replicas), bookies)
    pieces = [row["missing"] for row in replicas if row["missing"]]
    ranges = np.array([r for piece in pieces for r in piece], np.int64).reshape(-1, 2)
    level = _level(category, first, tables.get("ledger_health"))
    found = at_least(ranges, level)
    if not len(found):  # what an audit counts as lost may lie on bookies that did not answer
        found = at_least(ranges, 1)
    total = sum((found[:, 1] - found[:, 0] + 1).tolist())
    noun = "entry" if total == 1 else "entries"
    numbered = "" if total == 1 else f"{count(total)} "
    most = 3 if len(found) < 4 else 2 if len(name) < 32 else 1  # all of it has one line
    said = f"{numbered}{noun}: {ranges_text(found.tolist(), most)}"
    return Risk(name, category, said, bookies)


def _coarse(replicas: list[dict[str, Any]]) -> str:
    """Say where the missing entries lie if they are too many to list."""
    groups = [group for row in replicas for group in row["missing_groups"]]
    low, high = min(g[0] for g in groups), max(g[1] + g[2] - 1 for g in groups)
    number = sum(row["missing_entries"] for row in replicas)
    return f"{counted(number, 'replica')} of entries between {low} and {high}"


def _level(category: str, row: dict[str, Any], health: pa.Table | None) -> int:
    """Return of how many bookies an entry must be missing to make the ledger this category."""
    if health is None:
        return 1
    same = (numbers(health, "scope_id") == row["scope_id"]) & (
        numbers(health, "ledger_id") == row["ledger_id"]
    )
    at = np.flatnonzero(same)
    if not len(at):
        return 1
    write = int(numbers(health, "write_quorum_size")[at[0]])
    ack = int(numbers(health, "ack_quorum_size")[at[0]])
    return {"no_replica": write, "below_ack_quorum": write - ack + 1}.get(category, 1)


def at_least(ranges: Int64Array, level: int) -> Int64Array:
    """Return the inclusive ranges of ids that lie in at least `level` of some ranges.

    O(n log n) for n ranges.

    >>> at_least(np.array([[0, 9], [5, 12], [13, 13]]), 2).tolist()
    [[5, 9]]
    >>> at_least(np.array([[0, 9], [5, 12], [13, 13]]), 1).tolist()
    [[0, 13]]
    """
    ids = np.concatenate([ranges[:, 0], ranges[:, 1] + 1])
    steps = np.repeat(np.array([1, -1]), len(ranges))
    places, at = np.unique(ids, return_inverse=True)
    depth = np.cumsum(np.bincount(at, weights=steps, minlength=len(places)))
    inside = np.concatenate([[False], depth >= level])
    changes = places[np.flatnonzero(inside[1:] != inside[:-1])]
    return np.stack([changes[::2], changes[1::2] - 1], axis=1)


def bare_ledgers(tables: Mapping[str, pa.Table], most: int) -> list[Risk]:
    """Return the worst ledgers of `ledger_health`, with how many replicas they lack."""
    if "ledger_health" not in tables:
        return []
    table = tables["ledger_health"]
    classes, missing = class_of(table), numbers(table, "replicas_missing")
    order = np.lexsort((-missing, classes))
    chosen = order[classes[order] < len(DURABILITY)][:most]
    return [
        Risk(
            ledger_name(row["scope_id"], row["ledger_id"]),
            CLASSES[classes[at]],
            counted(row["replicas_missing"] or 0, "missing replica"),
            (),
        )
        for at, row in zip(chosen.tolist(), table.take(chosen).to_pylist())
    ]


def worst_holes(table: pa.Table, most: int) -> list[Risk]:
    """Return the ledgers of `holes` that lack most, as the nearest to a loss without metadata.

    One for each ledger, whatever the number of its bookies.
    """
    ledgers, rows = _by_ledger(table)
    holes = numbers(table, "holes")
    sums = np.zeros(len(ledgers), np.float64)  # a sum of counts below 2^63 each
    np.add.at(sums, rows, holes)
    chosen = np.argsort(-sums, kind="stable")[:most]
    return [_holed(table.take(np.flatnonzero(rows == at)).to_pylist()) for at in chosen.tolist()]


def _by_ledger(table: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Return the ledgers of a table in the order of ids, and for each row which it is about."""
    ids = np.stack([numbers(table, "scope_id"), numbers(table, "ledger_id")], axis=1)
    ledgers, rows = np.unique(ids, axis=0, return_inverse=True)
    order = unsigned_order(ledgers[:, 0], ledgers[:, 1])
    place = np.empty(len(ledgers), np.int64)
    place[order] = np.arange(len(ledgers))
    return ledgers[order], place[rows.reshape(-1)]


def _holed(rows: list[dict[str, Any]]) -> Risk:
    first, noun = rows[0], ("replica", "replicas") if len(rows) > 1 else ("entry", "entries")
    absent, off = (sum(row[name] or 0 for row in rows) for name in ("holes", "off_stripe"))
    said = [f"{counted(absent, *noun)} absent"]
    said += [f"{counted(off, *noun)} off the stripe"] if off else []
    low, high = min(row["first_entry"] for row in rows), max(row["last_entry"] for row in rows)
    name = ledger_name(first["scope_id"], first["ledger_id"])
    words = f"{' and '.join(said)} between {low} and {high}"
    return Risk(name, "holes", words, tuple(sorted({row["bookie"] for row in rows})))
