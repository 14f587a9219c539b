"""Entries in flight: stretches of consecutive entries, and a send queue (lane) for each bookie."""

from __future__ import annotations

from collections import deque

from bkstore.cluster.client.bookie_answers import BookieAnswer
from bkstore.formats.entry import RecordBatch
from bkstore.schedule import write_set

_MAX_SEND_ENTRIES = 1024
"""About how many entries a lane sends in one request."""


class AppendBatch:
    """Consecutive entries that are sent together; `bookie_indexes` are positions in the ensemble,
    those in `acks` of bookies that stored it, in `waiting` of those that have not answered yet."""

    def __init__(
        self, batch: RecordBatch, ledger_length: int, ensemble_size: int, write_quorum: int
    ) -> None:
        self.batch = batch
        self.first, self.last = int(batch.entries[0]), int(batch.entries[-1])
        self.count, self.size_bytes = len(batch), int(batch.sizes.sum())
        self.ledger_length = ledger_length
        """Payload bytes of the ledger up to its last entry."""
        # Write sets repeat after E entries, so those of the first E entries are enough.
        distinct_entries = range(self.first, min(self.last + 1, self.first + ensemble_size))
        self.write_sets = [
            frozenset(write_set(entry, ensemble_size, write_quorum)) for entry in distinct_entries
        ]
        self.bookie_indexes = frozenset().union(*self.write_sets)
        self.acks: set[int] = set()
        self.waiting: set[int] = set()

    def has_quorum(self, indexes: set[int], quorum: int) -> bool:
        """Return whether each entry's write set has at least `quorum` of these indexes."""
        return all(
            len(write_set_indexes & indexes) >= quorum for write_set_indexes in self.write_sets
        )


class SendQueue:
    """The send queue of one bookie of the ensemble; after its first failure it sends no more."""

    def __init__(self, index: int, bookie: str) -> None:
        self.index = index
        self.bookie = bookie
        self.batches: deque[AppendBatch] = deque()
        self.is_running = False
        self.failure: BookieAnswer[None] | None = None

    def pop_next(self) -> list[AppendBatch]:
        """Remove the next stretches to send from the queue and return them."""
        taken: list[AppendBatch] = []
        entry_count = 0
        while self.batches and entry_count < _MAX_SEND_ENTRIES:
            taken.append(self.batches.popleft())
            entry_count += len(taken[-1].batch)
        return taken
