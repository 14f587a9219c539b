"""A cache of records before a storage, filled by reads ahead."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from bkstore import LedgerStorage
from bkstore.ids import LedgerId

_Query = tuple[LedgerId, int]


class Served(NamedTuple):
    """What some reads came to: found in a cache, calls of the storage, bytes of both."""

    hits: int
    fetches: int
    fetched: int
    bytes: int


class ReadCache:
    """Records of a storage, up to so many bytes, read ahead; the least recently read go first.

    `count` entries are read at a time, or as many as `size` bytes hold. One at a time is
    `read_entry`: what a reader calls that wants no others.
    """

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
        self.fetches += 1
        if self.count == 1:
            found = [self.storage.read_entry(ledger, entry)]
            self._keep(ledger, entry, found[0])
        else:
            batch = self.storage.read_entries(ledger, entry, self.count, self.size)
            found = batch.records()
            for number, record in zip(batch.entries.tolist(), found):
                self._keep(ledger, number, record)
        self.fetched += sum(map(len, found))
        while self.held > self.room:
            self.held -= len(self.records.popitem(last=False)[1])
        return found[0]

    def _keep(self, ledger: LedgerId, entry: int, record: bytes) -> None:
        old = self.records.pop((ledger, entry), b"")
        self.records[ledger, entry] = record
        self.held += len(record) - len(old)


def read_by_cache(queries: Sequence[_Query], cache: ReadCache) -> Served:
    """Read entries by a cache that is empty."""
    for query in queries:
        cache.read(*query)
    return Served(cache.hits, cache.fetches, cache.fetched, cache.served)


def read_singly(queries: Sequence[_Query], storage: LedgerStorage) -> Served:
    """Read entries without a cache, by `read_entry`."""
    size = sum(len(storage.read_entry(*query)) for query in queries)
    return Served(0, len(queries), size, size)
