"""What is on its way: stretches of entries, and for each bookie a lane in which they wait."""

from __future__ import annotations

from collections import deque

from bkstore.cluster.client.bookie_answers import Answer
from bkstore.formats.entry import RecordBatch
from bkstore.schedule import write_set

_LANE_ENTRIES = 1024
"""Entries that a lane sends before it looks for answers."""


class Stretch:
    """Entries that are sent together; indexes are places in the ensemble."""

    def __init__(self, batch: RecordBatch, length: int, size: int, quorum: int) -> None:
        self.batch = batch
        self.first, self.last = int(batch.entries[0]), int(batch.entries[-1])
        self.count, self.size = len(batch), int(batch.sizes.sum())
        self.length = length
        """Payload bytes of the ledger up to its last entry."""
        residues = range(self.first, min(self.last + 1, self.first + size))
        self.write_sets = [frozenset(write_set(entry, size, quorum)) for entry in residues]
        self.indexes = frozenset().union(*self.write_sets)
        self.acks: set[int] = set()
        self.waiting: set[int] = set()

    def has(self, indexes: set[int], count: int) -> bool:
        """Return whether each entry has so many of these indexes in its write set."""
        return all(len(each & indexes) >= count for each in self.write_sets)


class Lane:
    """What one bookie of the ensemble is still to be sent; it ends with its first failure."""

    def __init__(self, index: int, bookie: str) -> None:
        self.index = index
        self.bookie = bookie
        self.queue: deque[Stretch] = deque()
        self.running = False
        self.failed: Answer[None] | None = None

    def take(self) -> list[Stretch]:
        """Return the next stretches to send, none if nothing waits."""
        taken: list[Stretch] = []
        entries = 0
        while self.queue and entries < _LANE_ENTRIES:
            taken.append(self.queue.popleft())
            entries += len(taken[-1].batch)
        return taken
