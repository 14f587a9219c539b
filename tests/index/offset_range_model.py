"""A clock that is set by hand, and the range index as dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np

LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def ids(*numbers: int) -> Any:
    """Return ids as an array."""
    return np.array(numbers, np.int64)


class Model:
    """The rules, the slow way: everything is looked through at every call."""

    def __init__(self, ttl: float, by_use: bool, max_items: int, max_entries: int) -> None:
        self.ttl, self.by_use = ttl, by_use
        self.max_items, self.max_entries = max_items, max_entries
        self.items: dict[tuple[int, int], dict[int, int]] = {}
        self.since: dict[tuple[int, int], tuple[float, int]] = {}
        self.turn = 0
        self.evictions = {"age": 0, "items": 0, "entries": 0}

    @property
    def entries(self) -> int:
        """Entries of all items."""
        return sum(map(len, self.items.values()))

    def _evict(self, key: tuple[int, int], reason: str) -> None:
        del self.items[key], self.since[key]
        self.evictions[reason] += 1

    def begin(self, now: float) -> None:
        """Let go what is due."""
        self.turn += 1
        for key in [key for key, (since, _) in self.since.items() if now - since >= self.ttl]:
            self._evict(key, "age")

    def touch(self, key: tuple[int, int], now: float) -> None:
        """Begin a life, or by use begin it anew."""
        if key in self.items and (self.by_use or key not in self.since):
            self.since[key] = (now, self.turn)

    def put(self, key: tuple[int, int], start: int, object_id: int, now: float) -> None:
        """Put, then evict the oldest while there is too much."""
        self.items.setdefault(key, {})[start] = object_id
        self.touch(key, now)
        while len(self.items) > self.max_items or self.entries > self.max_entries:
            reason = "items" if len(self.items) > self.max_items else "entries"
            self._evict(min(self.since, key=lambda k: self.since[k]), reason)

    def floor(self, key: tuple[int, int], offset: int, now: float) -> tuple[int, int] | None:
        """The greatest start <= offset."""
        self.touch(key, now)
        known = self.items.get(key, {})
        starts = [start for start in known if start <= offset]
        return (max(starts), known[max(starts)]) if starts else None

    def remove(self, key: tuple[int, int], start: int, object_id: int, now: float) -> bool:
        """Remove an entry that names that object."""
        self.touch(key, now)
        known = self.items.get(key, {})
        if known.get(start) != object_id:
            return False
        del known[start]
        if not known:
            del self.items[key], self.since[key]
        return True
