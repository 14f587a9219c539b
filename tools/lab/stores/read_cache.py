"""A read-ahead cache of records in front of a storage."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from bkstore import LedgerStorage
from bkstore.ids import LedgerId

_Query = tuple[LedgerId, int]


class Served(NamedTuple):
    """The outcome of reads: cache hits, calls of the storage, bytes fetched and bytes returned."""

    hits: int
    fetches: int
    fetched: int
    bytes: int


class ReadCache:
    """A least-recently-used cache of up to `room` bytes of records, which reads ahead.

    A miss reads `count` entries, or as many as fit into `size` bytes. With a `count` of 1 it calls
    `read_entry`, as a reader without read-ahead does.
    """

    def __init__(self, storage: LedgerStorage, room: int, count: int, size: int = 0) -> None:
        self.storage, self.room, self.count, self.size = storage, room, count, size
        self.records: OrderedDict[tuple[LedgerId, int], bytes] = OrderedDict()
        self.held = self.hits = self.fetches = self.fetched = self.served = 0

    def read(self, ledger: LedgerId, entry: int) -> bytes:
        """Return a record from the cache, or read it together with those that follow it."""
        record = self.records.get((ledger, entry))
        if record is not None:
            self.hits += 1
            self.records.move_to_end((ledger, entry))
        else:
            record = self._read_ahead(ledger, entry)
        self.served += len(record)
        return record

    def _read_ahead(self, ledger: LedgerId, entry: int) -> bytes:
        """Read a record and those that follow it, and evict the least recently read ones."""
        self.fetches += 1
        if self.count == 1:
            records = [self.storage.read_entry(ledger, entry)]
            self._store(ledger, entry, records[0])
        else:
            batch = self.storage.read_entries(ledger, entry, self.count, self.size)
            records = batch.records()
            for entry_id, record in zip(batch.entries.tolist(), records):
                self._store(ledger, entry_id, record)
        self.fetched += sum(map(len, records))
        while self.held > self.room:
            self.held -= len(self.records.popitem(last=False)[1])
        return records[0]

    def _store(self, ledger: LedgerId, entry: int, record: bytes) -> None:
        old = self.records.pop((ledger, entry), b"")
        self.records[ledger, entry] = record
        self.held += len(record) - len(old)


def read_by_cache(queries: Sequence[_Query], cache: ReadCache) -> Served:
    """Read entries through a cache, which is empty at first."""
    for query in queries:
        cache.read(*query)
    return Served(cache.hits, cache.fetches, cache.fetched, cache.served)


def read_singly(queries: Sequence[_Query], storage: LedgerStorage) -> Served:
    """Read entries without a cache, by `read_entry`."""
    bytes_read = sum(len(storage.read_entry(*query)) for query in queries)
    return Served(0, len(queries), bytes_read, bytes_read)
