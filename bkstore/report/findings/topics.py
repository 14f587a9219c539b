"""Ledgers by the topics that they belong to: what each topic has lost, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId, ledger_keys
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners
from bkstore.report.findings.health_classes import DURABILITY_CLASSES, class_ranks
from bkstore.report.findings.table_columns import Tables, id_pairs, number_column

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_LACKING = len(DURABILITY_CLASSES)
"""The rank of ledgers and topics that lack no replica."""


class Amounts(NamedTuple):
    """Numbers of ledgers or of topics, a value in each array for each of them: bytes of records,
    entries without any replica, missing replicas, and the rank: the index of the worst category in
    `DURABILITY_CLASSES`, or one more than the last if no replica is missing."""

    sizes: Int64Array
    lost_entries: Int64Array
    missing_replicas: Int64Array
    ranks: Int64Array

    @classmethod
    def zeros(cls, length: int) -> Amounts:
        """Return the numbers of items that have no bytes and lack nothing."""
        sizes, lost_entries, missing_replicas = np.zeros((3, length), np.int64)
        return cls(sizes, lost_entries, missing_replicas, np.full(length, _NOT_LACKING, np.int64))

    def worst_first(self) -> Int64Array:
        """Return the order by category, then by what is missing, then by size, largest first."""
        return np.lexsort((-self.sizes, -self.missing_replicas, -self.lost_entries, self.ranks))

    def take(self, indexes: Int64Array) -> Amounts:
        """Return the numbers of the items at these indexes."""
        return Amounts(*(values[indexes] for values in self))


class LedgerAmounts(NamedTuple):
    """A ledger of a topic, and its numbers; `category` is empty if it lacks no replica."""

    ledger: LedgerId
    owner: LedgerOwner
    category: str
    lost_entries: int
    missing_replicas: int
    size: int


@dataclass(frozen=True)
class Topics:
    """The topics of the ledgers that tables have: names and numbers, in the same order.

    A topic includes its subscriptions and schemas. An application whose ledgers state no topic
    stands for itself.
    """

    names: list[str]
    amounts: Amounts
    ledger_counts: Int64Array
    _owners: LedgerOwners
    _ledgers: Int64Array
    _topic_of_ledger: Int64Array
    _amounts_of_ledgers: Amounts

    def ledgers_of(self, topic: int, max_ledgers: int) -> list[LedgerAmounts]:
        """Return the worst ledgers of a topic, then the largest."""
        rows = np.flatnonzero(self._topic_of_ledger == topic)
        order = self._amounts_of_ledgers.take(rows).worst_first()
        return [self._describe_ledger(row) for row in rows[order[:max_ledgers]].tolist()]

    def _describe_ledger(self, row: int) -> LedgerAmounts:
        """Return the ledger with this index in the arrays of ledgers."""
        ledger = LedgerId.from_signed(*self._ledgers[row].tolist())
        size, lost_entries, missing_replicas, rank = (
            int(values[row]) for values in self._amounts_of_ledgers
        )
        owner = self._owners.get(ledger) or LedgerOwner()
        return LedgerAmounts(
            ledger, owner, category_of_rank(rank), lost_entries, missing_replicas, size
        )


def category_of_rank(rank: int) -> str:
    """Return the category of a rank of `Amounts`, an empty string if no replica is missing."""
    return DURABILITY_CLASSES[rank] if rank < _NOT_LACKING else ""


def gather_topics(tables: Tables, owners: LedgerOwners | None) -> Topics | None:
    """Return the topics of the ledgers in `bytes_by_ledger` and `ledger_health`; None if there are
    no such tables, or no owner is known. O(ledgers log ledgers)."""
    listed = [tables[each] for each in ("bytes_by_ledger", "ledger_health") if each in tables]
    if not owners or not listed:
        return None
    # One row for each ledger with a topic, whichever of the tables it is in. `numbers` has the
    # index of its owner in `owners.owners`, -1 for none.
    pairs = np.concatenate([id_pairs(table) for table in listed])
    numbers = owners.numbers_of(pairs[:, 0], pairs[:, 1])
    topic_names = np.array([owner.name_by("topic") or "" for owner in owners.owners], object)
    # Keep the ledgers whose owner is known and states a topic, or an application without one.
    is_named = numbers >= 0
    is_named[is_named] = topic_names[numbers[is_named]] != ""
    pairs, numbers = pairs[is_named], numbers[is_named]
    keys, first_rows = np.unique(ledger_keys(pairs[:, 0], pairs[:, 1]), return_index=True)
    ledgers, numbers = pairs[first_rows], numbers[first_rows]
    if not len(ledgers):
        return None
    of_ledgers = _amounts_of_ledgers(tables, keys)
    # Then one for each topic, which includes its subscriptions and schemas, owners of their own.
    names, topic_of_ledger = np.unique(topic_names[numbers], return_inverse=True)
    of_topics = _sum_amounts(of_ledgers, topic_of_ledger, len(names))
    counts = np.bincount(topic_of_ledger, minlength=len(names))
    return Topics(names.tolist(), of_topics, counts, owners, ledgers, topic_of_ledger, of_ledgers)


def _amounts_of_ledgers(tables: Tables, keys: Any) -> Amounts:
    """Return the numbers of the ledgers with these `ledger_keys`, which ascend; zero for what no
    table has."""
    amounts = Amounts.zeros(len(keys))
    if "bytes_by_ledger" in tables:
        table = tables["bytes_by_ledger"]
        rows, is_listed = _find_rows(table, keys)
        amounts.sizes[rows] = number_column(table, "bytes")[is_listed]
    if "ledger_health" in tables:
        table = tables["ledger_health"]
        rows, is_listed = _find_rows(table, keys)
        amounts.lost_entries[rows] = number_column(table, "lost_entries")[is_listed]
        amounts.missing_replicas[rows] = number_column(table, "replicas_missing")[is_listed]
        amounts.ranks[rows] = np.minimum(class_ranks(table), _NOT_LACKING)[is_listed]
    return amounts


def _find_rows(table: pa.Table, keys: Any) -> tuple[Int64Array, Any]:
    """Return which rows of a table are about ledgers with these keys, as a mask, and the index in
    `keys` of each of them."""
    pairs = id_pairs(table)
    keys_of_rows = ledger_keys(pairs[:, 0], pairs[:, 1])
    indexes = np.minimum(np.searchsorted(keys, keys_of_rows), len(keys) - 1)
    is_listed = keys[indexes] == keys_of_rows
    return indexes[is_listed], is_listed


def _sum_amounts(amounts: Amounts, topic_of_ledger: Int64Array, topics: int) -> Amounts:
    """Return the sums of the ledgers' numbers by topic, and the worst rank of each."""
    sums = Amounts.zeros(topics)
    for total, values in zip(sums[:-1], amounts[:-1]):  # all but the ranks
        np.add.at(total, topic_of_ledger, values)
    np.minimum.at(sums.ranks, topic_of_ledger, amounts.ranks)
    return sums


def owner_name(owners: LedgerOwners | None, scope_id: int, ledger_id: int) -> str:
    """Return the topic of a ledger with its subscription, its schema, or its application; an empty
    string if none is known. The ids are a table's signed columns."""
    owner = owners.get(LedgerId.from_signed(scope_id, ledger_id)) if owners else None
    return "" if owner is None else owner.subject or owner.application or ""
