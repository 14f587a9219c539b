"""A read-ahead cache of records in front of a storage."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage

_Query = tuple[LedgerId, int]


class ReadCosts(NamedTuple):
    """The outcome of reads: cache hits, calls of the storage, bytes fetched and bytes returned."""

    hits: int
    fetches: int
    fetched_bytes: int
    returned_bytes: int


class ReadCache:
    """A least-recently-used cache of up to `capacity` bytes of records, which reads ahead. A miss
    reads `max_count` entries, or as many as fit into `max_size` bytes. With a `max_count` of 1 it
    calls `read_entry`, as a reader without read-ahead does."""

    def __init__(
        self, storage: LedgerStorage, capacity: int, max_count: int, max_size: int = 0
    ) -> None:
        self.storage, self.capacity = storage, capacity
        self.max_count, self.max_size = max_count, max_size
        self.records: OrderedDict[tuple[LedgerId, int], bytes] = OrderedDict()
        self.cached_bytes = self.hits = self.fetches = self.fetched_bytes = self.returned_bytes = 0

    def read(self, ledger_id: LedgerId, entry: int) -> bytes:
        """Return a record from the cache, which counts as a hit, or read it from the storage
        together with those that follow it."""
        record = self.records.get((ledger_id, entry))
        if record is not None:
            self.hits += 1
            self.records.move_to_end((ledger_id, entry))
        else:
            record = self._read_ahead(ledger_id, entry)
        self.returned_bytes += len(record)
        return record

    def _read_ahead(self, ledger_id: LedgerId, entry: int) -> bytes:
        """Return a record, read together with those that follow it, up to `max_count` records or
        `max_size` bytes. All come into the cache; the least recently read ones are evicted."""
        self.fetches += 1
        if self.max_count == 1:  # no read-ahead
            records = [self.storage.read_entry(ledger_id, entry)]
            self._store(ledger_id, entry, records[0])
        else:
            batch = self.storage.read_entries(ledger_id, entry, self.max_count, self.max_size)
            records = batch.records()
            for entry_id, record in zip(batch.entries.tolist(), records):
                self._store(ledger_id, entry_id, record)
        self.fetched_bytes += sum(map(len, records))
        while self.cached_bytes > self.capacity:
            _, evicted = self.records.popitem(last=False)
            self.cached_bytes -= len(evicted)
        return records[0]

    def _store(self, ledger_id: LedgerId, entry: int, record: bytes) -> None:
        old = self.records.pop((ledger_id, entry), b"")
        self.records[ledger_id, entry] = record
        self.cached_bytes += len(record) - len(old)


def read_by_cache(queries: Sequence[_Query], cache: ReadCache) -> ReadCosts:
    """Read entries through a cache, which is empty at first."""
    for query in queries:
        cache.read(*query)
    return ReadCosts(cache.hits, cache.fetches, cache.fetched_bytes, cache.returned_bytes)


def read_singly(queries: Sequence[_Query], storage: LedgerStorage) -> ReadCosts:
    """Read entries without a cache, by `read_entry`."""
    bytes_read = sum(len(storage.read_entry(*query)) for query in queries)
    return ReadCosts(0, len(queries), bytes_read, bytes_read)
