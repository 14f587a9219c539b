"""Entries in flight: stretches of consecutive entries, and a send queue (lane) for each bookie."""

from __future__ import annotations

from collections import deque

from bkstore.cluster.client.bookie_answers import Answer
from bkstore.formats.entry import RecordBatch
from bkstore.schedule import write_set

_MAX_SEND_ENTRIES = 1024
"""About how many entries a lane sends in one request."""


class Stretch:
    """Consecutive entries that are sent together; `indexes` are positions in the ensemble, those in
    `acks` of bookies that stored it, in `waiting` of those that have not answered yet."""

    def __init__(self, batch: RecordBatch, length: int, size: int, quorum: int) -> None:
        self.batch = batch
        self.first, self.last = int(batch.entries[0]), int(batch.entries[-1])
        self.count, self.size = len(batch), int(batch.sizes.sum())
        self.length = length
        """Payload bytes of the ledger up to its last entry."""
        # Write sets repeat after E entries, so those of the first E entries are enough.
        distinct_entries = range(self.first, min(self.last + 1, self.first + size))
        self.write_sets = [frozenset(write_set(entry, size, quorum)) for entry in distinct_entries]
        self.indexes = frozenset().union(*self.write_sets)
        self.acks: set[int] = set()
        self.waiting: set[int] = set()

    def has(self, indexes: set[int], count: int) -> bool:
        """Return whether each entry's write set has at least `count` of these indexes."""
        return all(
            len(write_set_indexes & indexes) >= count for write_set_indexes in self.write_sets
        )


class Lane:
    """The send queue of one bookie of the ensemble; after its first failure it sends no more."""

    def __init__(self, index: int, bookie: str) -> None:
        self.index = index
        self.bookie = bookie
        self.queue: deque[Stretch] = deque()
        self.running = False
        self.failed: Answer[None] | None = None

    def take(self) -> list[Stretch]:
        """Remove the next stretches to send from the queue and return them."""
        taken: list[Stretch] = []
        entry_count = 0
        while self.queue and entry_count < _MAX_SEND_ENTRIES:
            taken.append(self.queue.popleft())
            entry_count += len(taken[-1].batch)
        return taken
