"""A write path with two write caches that take turns, for sorted and db storage: records wait in
the active cache and are flushed in order of ids, while adds continue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from threading import RLock
from typing import Literal, NamedTuple

import numpy as np

from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD, WriteCache
from bkstore.storage.options import StorageOptions

_NO_ENTRIES = np.empty(0, np.int64)


class _LoggedEntries(NamedTuple):
    """Entries of one ledger, with their locations in the log: int64[n] each."""

    entries: Int64Array
    locations: Int64Array


class CachedWritePath(WritePath):
    """A write path with an active write cache, and the one that is being flushed. `lock` guards the
    two; a second lock lets one flush run at a time. A full cache makes an add wait for a flush."""

    duplicates: Literal["first", "last"]

    def __init__(
        self, index: EntryIndex, logger: EntryLogger, options: StorageOptions, cache_bytes: int
    ) -> None:
        super().__init__(index, logger, options)
        self._limit = cache_bytes
        self.active_cache = WriteCache(self.duplicates, cache_bytes)
        self.snapshot = WriteCache(self.duplicates, cache_bytes)
        self._flush_lock = RLock()
        self._logged: dict[LedgerId, _LoggedEntries] = {}
        """Records of the snapshot that are in the log: a flush after a failed one goes on from here
        instead of appending them again."""

    @property
    def unflushed(self) -> EntrySource:
        """Inherited."""
        return LayeredSource(self.active_cache, self.snapshot)

    def reserve(self, size: int) -> None:
        """Make room in the active cache: wait for the running flush, or run one. With concurrent
        adds the cache may exceed its limit by one record of each thread."""
        if not self.active_cache.has_room(size, self.options.auto_flush):
            self.drain()
            self.after_full_cache()

    def after_full_cache(self) -> None:
        """Called after a flush that a full cache made necessary."""

    def fits(self, size: int) -> bool:
        """Inherited."""
        active = self.active_cache
        return active.size + size + ENTRY_OVERHEAD <= active.limit

    def add(self, ledger_id: LedgerId, entry_id: int, record: bytes) -> None:
        """Put a record into the active cache; `reserve` made room for it."""
        self.active_cache.put(ledger_id, entry_id, record)

    def count_fitting(self, batch: RecordBatch) -> int:
        """Return how many records fit into the active cache."""
        return self.active_cache.count_fitting(batch)

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Put records into the active cache, by ledger. Yield their number once, as all are stored
        together; write paths without a cache yield the number that each log took."""
        if ledgers.numbers is None:
            self.active_cache.put_batch(ledgers.ledger_ids[0], batch)
        else:
            for ledger_id, rows in zip(ledgers.ledger_ids, ledgers.rows_by_ledger(len(batch))):
                self.active_cache.put_batch(ledger_id, batch.take(rows).framed())
        yield len(batch)

    def get_cached(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return a record from the active cache, else from the one being flushed."""
        active = self.active_cache
        record = active.get(ledger_id, entry_id) if active.count else None
        if record is None and (snapshot := self.snapshot).count:
            return snapshot.get(ledger_id, entry_id)
        return record

    def get_cached_run(self, ledger_id: LedgerId, start: int, count: int) -> RecordBatch:
        """Return consecutive records from one cache: the active one, or, if it lacks the first, the
        snapshot that is being flushed, up to an entry of which the active one has a newer copy."""
        batch = self.active_cache.get_run(ledger_id, start, count)
        if len(batch):
            return batch
        batch = self.snapshot.get_run(ledger_id, start, count)
        if not len(batch):
            return batch
        first_newer = self.active_cache.find_first(ledger_id, start, start + len(batch) - 1)
        return batch if first_newer is None else batch.first(first_newer - start)

    def find_first_cached(self, ledger_id: LedgerId, first: int, last: int) -> int | None:
        """Inherited."""
        caches = (self.active_cache, self.snapshot)
        lowest_ids = [cache.find_first(ledger_id, first, last) for cache in caches]
        return min((entry for entry in lowest_ids if entry is not None), default=None)

    def drop_unflushed(self, ledger_id: LedgerId) -> None:
        """Drop the ledger's records from both caches."""
        self.active_cache.drop(ledger_id)
        self.snapshot.drop(ledger_id)
        self._logged.pop(ledger_id, None)

    def log_snapshot(self, *, roll: bool = True) -> dict[LedgerId, _LoggedEntries]:
        """Append the snapshot's records to the log, in key order; return their locations by ledger,
        in a dict that lives until the snapshot is dropped: deleting a ledger removes it there too.
        The caller holds `lock`. With `roll`, another log is started at the size limit of the
        options, else only at 2^31-1 bytes.

        Of a ledger deleted meanwhile, which only compat mode leaves in the snapshot, the first
        record is appended and never indexed, as BookKeeper does."""
        for ledger_id in self.snapshot.list_ledger_ids():
            if self.states.find(ledger_id) is None:
                first_batch = next(self.snapshot.batches(ledger_id), None)
                if first_batch is not None:
                    self.logger.add(ledger_id, bytes(first_batch[0]), roll=roll)
            else:
                self._log_ledger(ledger_id, roll)
        return self._logged

    def _log_ledger(self, ledger_id: LedgerId, roll: bool) -> None:
        """Append a ledger's records to the log, and note their locations in `_logged`, even if this
        fails: the next flush then skips the records that are in the log already."""
        logged = self._logged.get(ledger_id, _LoggedEntries(_NO_ENTRIES, _NO_ENTRIES))
        entries, locations = [logged.entries], [logged.locations]
        skip_count, ledgers = logged.entries.size, BatchLedgers([ledger_id])
        try:
            for batch in self.snapshot.batches(ledger_id):
                unlogged = batch.between(min(skip_count, len(batch)), len(batch)).framed()
                skip_count -= len(batch) - len(unlogged)
                for new_locations in self.logger.add_batch(unlogged, ledgers, roll=roll):
                    entries.append(unlogged.entries[: new_locations.size])
                    locations.append(new_locations)
                    unlogged = unlogged.between(new_locations.size, len(unlogged))  # what is left
        finally:
            merged = _LoggedEntries(np.concatenate(entries), np.concatenate(locations))
            self._logged[ledger_id] = merged

    def take_snapshot(self) -> bool:
        """Make the active cache the snapshot, with an empty one in its place. If a failed flush has
        left its snapshot, that stays, to be flushed first. Return whether any record is in it."""
        with self.lock:
            if not self.snapshot.count and self.active_cache.count:
                new_cache = WriteCache(self.duplicates, self._limit)
                self.snapshot, self.active_cache = self.active_cache, new_cache
            return bool(self.snapshot.count)

    def drain(self) -> bool:
        """Write out every record in the caches; return whether there was any."""
        is_written = False
        with self._flush_lock:
            while self.take_snapshot():
                with self.noting_failure():
                    self.write_snapshot()
                with self.lock:
                    self.snapshot = WriteCache(self.duplicates, self._limit)
                    self._logged.clear()
                is_written = True
        return is_written

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        """Return the highest entry id. In compat mode, which copies BookKeeper's behavior, that of
        the first source with the ledger: active cache, cache being flushed, index."""
        if self.options.compat is None:
            return super().last_entry(ledger_id)
        for cache in (self.active_cache, self.snapshot):
            last_cached = cache.last_entry(ledger_id)
            if last_cached is not None:
                return last_cached
        return self.index.last_entry(ledger_id)

    @abstractmethod
    def write_snapshot(self) -> None:
        """Write the snapshot's records to the log and their locations to the index."""
