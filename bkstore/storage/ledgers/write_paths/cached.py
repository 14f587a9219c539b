"""A write path with two write caches that take turns: what sorted and db storage share.

Records wait in the active cache and are flushed in order of ids; adds go on meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from threading import RLock
from typing import Literal, NamedTuple

import numpy as np

from bkstore.errors import InvalidArgument, TooManyRequests
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD, WriteCache
from bkstore.storage.options import StorageOptions

_NONE = np.empty(0, np.int64)


class _Placed(NamedTuple):
    """Entries of one ledger, and where in the log they lie: int64[n] each."""

    entries: Int64Array
    locations: Int64Array


class CachedPath(WritePath):
    """A write path with an active write cache, and the one that is being flushed.

    `lock` guards the two; a second lock lets one flush run at a time. An add that finds the
    active cache full waits for the flush that is going on, or runs one.
    """

    rule: Literal["first", "last"]

    def __init__(
        self, index: EntryIndex, logger: EntryLogger, options: StorageOptions, cache: int
    ) -> None:
        super().__init__(index, logger, options)
        self._limit = cache
        self.active = WriteCache(self.rule, cache)
        self.snapshot = WriteCache(self.rule, cache)
        self._flushing = RLock()
        self._placed: dict[LedgerId, _Placed] = {}
        """What of the snapshot is in the log, so that a flush that failed goes on from there."""

    @property
    def unflushed(self) -> EntrySource:
        """The entries of both caches."""
        return LayeredSource(self.active, self.snapshot)

    def reserve(self, size: int) -> None:
        """Make room in the active cache: wait for the flush that is going on, or run one.

        Beside other threads the cache may grow past its limit by one record of each.
        """
        if self.fits(size):
            return
        if size + ENTRY_OVERHEAD > self._limit:
            raise InvalidArgument(f"record of {size} bytes, the write cache takes {self._limit}")
        if not self.options.auto_flush:
            raise TooManyRequests(f"the write cache of {self._limit} bytes is full: flush first")
        self.drain()
        self.after_full_cache()

    def after_full_cache(self) -> None:
        """Do what follows a flush that a full cache made necessary."""

    def fits(self, size: int) -> bool:
        """Inherited."""
        active = self.active
        return active.size + size + ENTRY_OVERHEAD <= active.limit

    def add(self, name: LedgerId, entry: int, record: bytes) -> None:
        """Put a record into the active cache; `reserve` made room for it."""
        self.active.put(name, entry, record)

    def room(self, batch: RecordBatch) -> int:
        """Return how many records fit into the active cache."""
        return self.active.room(batch)

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Put records into the active cache, by ledger; all at once."""
        if ledgers.numbers is None:
            self.active.put_batch(ledgers.names[0], batch)
        else:
            for name, rows in zip(ledgers.names, ledgers.rows(len(batch))):
                self.active.put_batch(name, batch.at(rows).framed())
        yield len(batch)

    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record of the active cache, else of the one being flushed."""
        active = self.active
        record = active.get(name, entry) if active.count else None
        if record is None and (snapshot := self.snapshot).count:
            return snapshot.get(name, entry)
        return record

    def cached_run(self, name: LedgerId, start: int, count: int) -> RecordBatch:
        """Return consecutive records of one of the caches."""
        found = self.active.get_run(name, start, count)
        if len(found):
            return found
        found = self.snapshot.get_run(name, start, count)
        newer = self.active.first_in(name, start, start + len(found) - 1) if len(found) else None
        return found if newer is None else found.first(newer - start)

    def first_cached(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest entry of first..last that either cache has."""
        found = [cache.first_in(name, first, last) for cache in (self.active, self.snapshot)]
        return min((entry for entry in found if entry is not None), default=None)

    def forget(self, name: LedgerId) -> None:
        """Drop the ledger's records from both caches."""
        self.active.drop(name)
        self.snapshot.drop(name)
        self._placed.pop(name, None)

    def place(self, *, roll: bool = True) -> None:
        """Append the snapshot's records to the log, in key order; the caller holds `lock`.

        Of a deleted ledger (compat mode only) the first goes to the log in vain, as upstream.
        """
        for name in self.snapshot.names():
            if self.states.find(name) is None:
                first = next(self.snapshot.batches(name), None)
                if first is not None:
                    self.logger.add(name, bytes(first[0]), roll=roll)
            else:
                self._place_ledger(name, roll)

    def _place_ledger(self, name: LedgerId, roll: bool) -> None:
        """Append a ledger's records that are not in the log yet."""
        placed = self._placed.get(name, _Placed(_NONE, _NONE))
        entries, locations = [placed.entries], [placed.locations]
        passed = placed.entries.size
        try:
            for batch in self.snapshot.batches(name):
                rest = batch.between(min(passed, len(batch)), len(batch)).framed()
                passed -= len(batch) - len(rest)
                for some in self.logger.add_batch(rest, BatchLedgers([name]), roll=roll):
                    entries.append(rest.entries[: some.size])
                    locations.append(some)
                    rest = rest.between(some.size, len(rest))
        finally:
            self._placed[name] = _Placed(np.concatenate(entries), np.concatenate(locations))

    def take_snapshot(self) -> bool:
        """Make the active cache the one to flush; return whether there is anything to flush.

        One that an earlier flush could not write out stays, and goes first.
        """
        with self.lock:
            if not self.snapshot.count and self.active.count:
                self.snapshot, self.active = self.active, WriteCache(self.rule, self._limit)
            return bool(self.snapshot.count)

    def drain(self) -> bool:
        """Write out every record in the caches; return whether there was any."""
        some = False
        with self._flushing:
            while self.take_snapshot():
                with self.noting_failure():
                    self.write_snapshot()
                with self.lock:
                    self.snapshot = WriteCache(self.rule, self._limit)
                    self._placed.clear()
                some = True
        return some

    def last_entry(self, name: LedgerId) -> int | None:
        """Return the highest entry here; in compat mode the first answer of cache or index.

        The real storages ask the active cache, then the one being flushed, then the index.
        """
        if self.options.compat is None:
            return super().last_entry(name)
        for cache in (self.active, self.snapshot):
            last = cache.last_entry(name)
            if last is not None:
                return last
        return self.index.last_entry(name)

    @abstractmethod
    def write_snapshot(self) -> None:
        """Write the snapshot's records to the log and their locations to the index."""
