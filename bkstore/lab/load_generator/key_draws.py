"""The entries that a load reads: by Zipf's law, uniformly, or along a stripe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bkstore.ids import Int64Array, LedgerId

KeyOrder = Literal["zipf", "uniform", "stripe"]
KEY_ORDERS: tuple[KeyOrder, ...] = get_args(KeyOrder)


def entry_ids_of(order: KeyOrder, first: int, count: int) -> Int64Array:
    """Return the ids of the entries number `first` to `first + count - 1` that a ledger has here.
    For ``stripe`` these are entries of bookie 0 of a 2-of-3 stripe, which has the ids 0, 2, 3, 5,
    6, ...: two of each three. Otherwise the ledger has all ids.

    >>> entry_ids_of("stripe", 1, 4).tolist(), entry_ids_of("zipf", 1, 4).tolist()
    ([2, 3, 5, 6], [1, 2, 3, 4])
    """
    positions = np.arange(first, first + count, dtype=np.int64)
    return positions // 2 * 3 + positions % 2 * 2 if order == "stripe" else positions


@dataclass(frozen=True)
class EntryKeys:
    """The entries that may be read: each ledger has the same entry ids, ascending."""

    ledgers: Sequence[LedgerId]
    entry_ids: Int64Array

    @property
    def count(self) -> int:
        """The number of rows: of entries in all ledgers."""
        return len(self.ledgers) * self.entry_ids.size

    def split_rows(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the index of the ledger, and of the entry in `entry_ids`, of each row number."""
        ledger_numbers, entry_numbers = np.divmod(rows, self.entry_ids.size)
        return ledger_numbers, entry_numbers


class KeyDraws:
    """An endless sequence of row numbers below `keys.count`, for one client.

    By ``zipf`` the k-th most frequent row has a frequency proportional to 1 / k; which row that is
    follows from the seed alone, so that all clients have the same favorites. By ``uniform`` all
    rows are equally frequent. With ``stripe`` a client reads all rows in order, from a random one
    on, as a reader that catches up. Memory: for ``zipf`` 16 bytes a row.
    """

    def __init__(self, order: KeyOrder, keys: EntryKeys, seed: int, client: int) -> None:
        """Draw rows of `keys` for one client: by Zipf's law, uniformly, or along a stripe. Clients
        draw differently, but the same rows are the popular ones for all of them."""
        self._order, self._keys = order, keys
        self._rng = np.random.default_rng((seed, client))
        self._next_row = int(self._rng.integers(keys.count))  # of a stripe
        if order == "zipf":
            # The row of rank r is drawn with a probability proportional to 1 / r.
            self._weights = np.cumsum(1 / np.arange(1, keys.count + 1))
            self._row_of_rank = np.random.default_rng(seed).permutation(keys.count)

    def draw(self, count: int) -> Int64Array:
        """Return the next `count` row numbers, int64[count]. Along a stripe they follow each other
        from a random one on, and begin again after the last."""
        if self._order == "zipf":
            weights = self._rng.random(count) * self._weights[-1]
            rows: Int64Array = self._row_of_rank[np.searchsorted(self._weights, weights, "right")]
            return rows
        if self._order == "uniform":
            return self._rng.integers(0, self._keys.count, count, dtype=np.int64)
        rows = (self._next_row + np.arange(count, dtype=np.int64)) % self._keys.count
        self._next_row = int(rows[-1]) + 1
        return rows
