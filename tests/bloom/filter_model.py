"""A bloom filter by the book, key by key, to hold the real one against."""

from __future__ import annotations

from typing import Any

import mmh3
import numpy as np
from hypothesis import strategies as st

from bkstore.bloom import BloomFilter

LOWEST, HIGHEST = -(2**63), 2**63 - 1
PAGE = "bloom.md"

ids = st.integers(LOWEST, HIGHEST)
many_ids = st.lists(ids, min_size=70, max_size=300)
"""More than the few ids for which arrays are taken apart."""


class Model:
    """The rules of the page, on Python ints: an oracle that shares no code with the package."""

    def __init__(self, size: int, hash_count: int) -> None:
        self.size, self.hash_count = size, hash_count
        self.set: set[int] = set()

    def positions(self, key: int) -> list[int]:
        """Return the positions of a key."""
        digest = mmh3.hash_bytes((key % 2**64).to_bytes(8, "little"))
        h1, h2 = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
        sums = [(h1 + nth * h2) % 2**64 for nth in range(self.hash_count)]
        return [(c & HIGHEST) % self.size for c in sums]

    def add(self, key: int) -> None:
        """Set the bits of a key."""
        self.set.update(self.positions(key))

    def __contains__(self, key: int) -> bool:
        return self.set.issuperset(self.positions(key))

    def to_bytes(self) -> bytes:
        """Return Guava's bytes."""
        words = [0] * (self.size // 64)
        for position in self.set:
            words[position // 64] |= 1 << position % 64
        header = bytes((1, self.hash_count)) + len(words).to_bytes(4, "big")
        return header + b"".join(word.to_bytes(8, "big") for word in words)


def like(made: BloomFilter) -> Model:
    """Return an empty model of the filter's size."""
    return Model(made.bit_size, made.hash_count)


def random_ids(count: int, seed: int = 1) -> Any:
    """Return int64 ids from the whole range."""
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST, count, endpoint=True)
