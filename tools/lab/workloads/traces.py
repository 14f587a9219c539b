"""What is read: ledgers and entries in the order in which readers ask for them, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId


class Trace(NamedTuple):
    """Reads: for each the number of its ledger in `ledgers`, and its entry."""

    ledgers: list[LedgerId]
    which: Int64Array
    entry: Int64Array

    @property
    def queries(self) -> list[tuple[LedgerId, int]]:
        """The reads as (ledger, entry), one a read."""
        return [(self.ledgers[at], entry) for at, entry in zip(self.which, self.entry.tolist())]


def _zipf(total: int, count: int, rng: np.random.Generator) -> Int64Array:
    """Return rows of which the k-th most wanted is asked for in proportion to 1 / k."""
    shares = np.cumsum(1 / np.arange(1, total + 1))
    ranks = np.searchsorted(shares, rng.random(count) * shares[-1], side="right")
    chosen: Int64Array = rng.permutation(total)[ranks]
    return chosen


def _uniform(total: int, count: int, rng: np.random.Generator) -> Int64Array:
    return rng.integers(0, total, count, dtype=np.int64)


def _sequential(total: int, count: int, rng: np.random.Generator) -> Int64Array:
    """Return rows of four readers that take turns, each going on from a place of its own."""
    readers = min(4, count)
    begins = rng.integers(0, total, readers, dtype=np.int64)
    steps = np.arange(-(-count // readers), dtype=np.int64)
    rows: Int64Array = ((begins + steps[:, None]) % total).ravel()[:count]
    return rows


TRACES: dict[str, Callable[[int, int, np.random.Generator], Int64Array]] = {
    "zipf": _zipf,
    "uniform": _uniform,
    "sequential": _sequential,
}
"""Orders of reading by name: functions of how many rows there are, how many reads, and chance."""


def trace(name: str, entries: Mapping[LedgerId, Int64Array], count: int, seed: int) -> Trace:
    """Return `count` reads of rows that are there, in an order of `TRACES`."""
    ledgers = [ledger for ledger, ids in entries.items() if ids.size]
    sizes = np.array([entries[ledger].size for ledger in ledgers])
    ends = np.cumsum(sizes)
    rows = TRACES[name](int(ends[-1]), count, np.random.default_rng((seed, len(name))))
    which = np.searchsorted(ends, rows, side="right")
    every = np.concatenate([entries[ledger] for ledger in ledgers])
    return Trace(ledgers, which, every[rows])
