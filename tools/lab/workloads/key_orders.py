"""Rows of many ledgers under keys whose words stand in one order or another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.testing.generators import locations

Words = npt.NDArray[np.uint64]


class KeyOrder(NamedTuple):
    """Which words a key has: 0 the scope, 1 the ledger, 2 the entry; and where ids come from.

    `prefix` says how many words name a ledger and come first; 0 where its rows are scattered.
    """

    words: tuple[int, ...]
    scopes: str
    prefix: int


KEY_ORDERS = {
    "ledger, entry": KeyOrder((1, 2), "0", 1),
    "entry, ledger": KeyOrder((2, 1), "0", 0),
    "scope, ledger, entry": KeyOrder((0, 1, 2), "four", 2),
    "ledger, scope, entry": KeyOrder((1, 0, 2), "four", 2),
    "scope, ledger, entry; UUIDs": KeyOrder((0, 1, 2), "UUID", 2),
}
"""Orders by name."""


def _ids(scopes: str, count: int, seed: int) -> tuple[Words, Words]:
    """Return the scopes and ledgers of ledgers."""
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    if scopes == "0":
        return np.zeros(count, np.uint64), numbers
    rng = np.random.default_rng(seed)
    if scopes == "four":
        return rng.integers(1, 1 << 64, 4, np.uint64, endpoint=False)[numbers % 4], numbers
    high, low = rng.integers(1, 1 << 64, (2, count), np.uint64, endpoint=False)
    return high, low


class Filling(NamedTuple):
    """All rows as they arrive: a few entries of every ledger at a time."""

    keys: Words
    places: Int64Array


def filling(order: KeyOrder, count: int, per_ledger: int, seed: int) -> Filling:
    """Return what so many ledgers of so many entries come to."""
    scope, ledger = _ids(order.scopes, count, seed)
    which = np.tile(np.repeat(np.arange(count), per_ledger // 10), 10)
    entry = np.tile(np.arange(per_ledger, dtype=np.uint64).reshape(10, 1, -1), (1, count, 1))
    words = (scope[which], ledger[which], entry.ravel())
    keys = np.stack([words[at] for at in order.words], axis=1)
    return Filling(keys, locations(which.size, seed))


def key_bytes(words: Words) -> list[bytes]:
    """Return the keys as RocksDB has them."""
    made: list[bytes] = words.astype(">u8").view(f"V{8 * words.shape[1]}").ravel().tolist()
    return made
