"""Entries in flight: batches of consecutive entries, and a send queue for each bookie."""

from __future__ import annotations

from collections import deque

from bkstore.cluster.client.bookie_answers import BookieAnswer
from bkstore.formats.entry import RecordBatch
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import write_set

_MAX_SEND_ENTRIES = 1024
"""About how many entries a queue sends in one request."""


class AppendBatch:
    """Consecutive entries that are sent together. Bookies are given by their ensemble index."""

    def __init__(self, records: RecordBatch, ledger_length: int, metadata: LedgerMetadata) -> None:
        self.records = records
        self.first, self.last = int(records.entries[0]), int(records.entries[-1])
        self.count, self.size_bytes = len(records), int(records.sizes.sum())
        self.ledger_length = ledger_length
        """Payload bytes of the ledger up to its last entry."""
        # Write sets repeat after E entries, so those of the first E entries are enough.
        size, quorum = metadata.ensemble_size, metadata.write_quorum_size
        distinct_entries = range(self.first, min(self.last + 1, self.first + size))
        self.write_sets = [frozenset(write_set(entry, size, quorum)) for entry in distinct_entries]
        self.bookie_indexes = frozenset().union(*self.write_sets)
        self.acks: set[int] = set()
        """Ensemble indexes of the bookies that have stored the batch."""
        self.waiting: set[int] = set()
        """Ensemble indexes of the bookies that were sent the batch and have not answered."""

    def has_quorum(self, indexes: set[int], quorum: int) -> bool:
        """Return whether each entry's write set has at least `quorum` of these indexes."""
        return all(len(replicas & indexes) >= quorum for replicas in self.write_sets)


class SendQueue:
    """The send queue of one bookie of the ensemble; after its first failure it sends no more."""

    def __init__(self, index: int, bookie: str) -> None:
        self.index = index
        self.bookie = bookie
        self.batches: deque[AppendBatch] = deque()
        self.is_running = False
        self.failure: BookieAnswer[None] | None = None

    def pop_next(self) -> list[AppendBatch]:
        """Remove the next batches to send from the queue and return them."""
        taken: list[AppendBatch] = []
        entry_count = 0
        while self.batches and entry_count < _MAX_SEND_ENTRIES:
            taken.append(self.batches.popleft())
            entry_count += len(taken[-1].records)
        return taken
