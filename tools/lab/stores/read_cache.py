"""A cache of records before a storage, filled by reads ahead."""

from __future__ import annotations

from collections import OrderedDict

from bkstore import LedgerStorage
from bkstore.ids import LedgerId

__all__ = ["ReadCache"]


class ReadCache:
    """Records of a storage, up to so many bytes, read ahead; the least recently read go first."""

    def __init__(self, storage: LedgerStorage, room: int, count: int, size: int = 0) -> None:
        self.storage, self.room, self.count, self.size = storage, room, count, size
        self.records: OrderedDict[tuple[LedgerId, int], bytes] = OrderedDict()
        self.held = self.hits = self.fetches = self.fetched = self.served = 0

    def read(self, ledger: LedgerId, entry: int) -> bytes:
        """Return a record, from the cache or with those that follow it."""
        record = self.records.get((ledger, entry))
        if record is not None:
            self.hits += 1
            self.records.move_to_end((ledger, entry))
        else:
            record = self._fetch(ledger, entry)
        self.served += len(record)
        return record

    def _fetch(self, ledger: LedgerId, entry: int) -> bytes:
        batch = self.storage.read_entries(ledger, entry, self.count, self.size)
        found = batch.records()
        self.fetches += 1
        self.fetched += sum(map(len, found))
        for number, record in zip(batch.entries.tolist(), found):
            old = self.records.pop((ledger, number), b"")
            self.records[ledger, number] = record
            self.held += len(record) - len(old)
        while self.held > self.room:
            self.held -= len(self.records.popitem(last=False)[1])
        return found[0]
