"""Traces generated from a seed: ledgers and entries in the order in which readers read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId


class Trace(NamedTuple):
    """Reads of entries: of each read, `ledger_numbers` has the ledger's index in `ledgers`."""

    ledgers: list[LedgerId]
    ledger_numbers: Int64Array
    entry_ids: Int64Array

    @property
    def queries(self) -> list[tuple[LedgerId, int]]:
        """The reads as pairs of ledger and entry."""
        ledgers = (self.ledgers[number] for number in self.ledger_numbers)
        return list(zip(ledgers, self.entry_ids.tolist()))


def _draw_zipf(row_count: int, read_count: int, rng: np.random.Generator) -> Int64Array:
    """Return row numbers of which the k-th most frequent has a frequency proportional to 1 / k."""
    cumulative_weights = np.cumsum(1 / np.arange(1, row_count + 1))
    drawn = rng.random(read_count) * cumulative_weights[-1]
    ranks = np.searchsorted(cumulative_weights, drawn, side="right")
    rows: Int64Array = rng.permutation(row_count)[ranks]
    return rows


def _draw_uniform(row_count: int, read_count: int, rng: np.random.Generator) -> Int64Array:
    return rng.integers(0, row_count, read_count, dtype=np.int64)


def _draw_sequential(row_count: int, read_count: int, rng: np.random.Generator) -> Int64Array:
    """Return row numbers of four sequential readers that take turns, from random first rows on."""
    readers = min(4, read_count)
    first_rows = rng.integers(0, row_count, readers, dtype=np.int64)
    steps = np.arange(-(-read_count // readers), dtype=np.int64)
    rows: Int64Array = ((first_rows + steps[:, None]) % row_count).ravel()[:read_count]
    return rows


TRACES: dict[str, Callable[[int, int, np.random.Generator], Int64Array]] = {
    "zipf": _draw_zipf,
    "uniform": _draw_uniform,
    "sequential": _draw_sequential,
}
"""Read orders by name: functions of the number of rows, the number of reads, and a generator."""


def make_trace(
    order: str, entries: Mapping[LedgerId, Int64Array], read_count: int, seed: int
) -> Trace:
    """Return a trace of `read_count` reads of existing entries, in an order of `TRACES`. The orders
    draw row numbers: the entries of all ledgers, one ledger after the other, count from 0."""
    ledgers = [ledger for ledger, ids in entries.items() if ids.size]
    sizes = np.array([entries[ledger].size for ledger in ledgers])
    ends = np.cumsum(sizes)  # the row number behind the last entry of each ledger
    # The names of the orders differ in length: each order has random numbers of its own.
    rows = TRACES[order](int(ends[-1]), read_count, np.random.default_rng((seed, len(order))))
    ledger_numbers = np.searchsorted(ends, rows, side="right")
    all_entries = np.concatenate([entries[ledger] for ledger in ledgers])
    return Trace(ledgers, ledger_numbers, all_entries[rows])
