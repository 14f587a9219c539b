"""The write paths of sorted and db storage: records in a write cache, flushed in order of ids.

Sorted storage (`SortedLedgerStorage`, `EntryMemTable`): a skip list in front of the interleaved
path. Db storage (`SingleDirectoryDbLedgerStorage`): two write caches that take
turns; the log is synced before the index is told. Both take adds while a flush is going on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument, TooManyRequests
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.api import InterleavedPath, WritePath
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD, WriteCache
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.index.rocks import RocksIndex

__all__ = ["CachedPath", "DbPath", "SortedPath"]


class Placed(NamedTuple):
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
        self._placed: dict[LedgerId, Placed] = {}
        """What of the snapshot is in the log, so that a flush that failed goes on from there."""

    @property
    def unflushed(self) -> EntrySource:
        """The entries of both caches."""
        return LayeredSource(self.active, self.snapshot)

    def reserve(self, size: int) -> None:
        """Make room in the active cache: wait for the flush that is going on, or run one.

        Beside other threads the cache may grow past its limit by one record of each.
        """
        if self.active.fits(size):
            return
        if size + ENTRY_OVERHEAD > self._limit:
            raise InvalidArgument(f"record of {size} bytes, the write cache takes {self._limit}")
        if not self.options.auto_flush:
            raise TooManyRequests(f"the write cache of {self._limit} bytes is full: flush first")
        self.drain()
        self.after_full_cache()

    def after_full_cache(self) -> None:
        """Do what follows a flush that a full cache made necessary."""

    def add(self, name: LedgerId, entry: int, record: bytes) -> None:
        """Put a record into the active cache; `reserve` made room for it."""
        self.active.put(name, entry, record)

    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record of the active cache, else of the one being flushed."""
        active = self.active
        record = active.get(name, entry) if active.count else None
        if record is None and (snapshot := self.snapshot).count:
            return snapshot.get(name, entry)
        return record

    def cached_run(self, name: LedgerId, start: int, count: int) -> list[bytes]:
        """Return consecutive records of one of the caches."""
        found = self.active.get_run(name, start, count)
        if found:
            return found
        found = self.snapshot.get_run(name, start, count)
        newer = self.active.first_in(name, start, start + len(found) - 1) if found else None
        return found if newer is None else found[: newer - start]

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
        for name, entries, records in self.snapshot.tables():
            if name in self._placed:
                continue
            if self.states.find(name) is None:
                self.logger.add(name, records[0], roll=roll)
                continue
            self._placed[name] = Placed(
                np.array(entries, np.int64), self.logger.add_many(name, records, roll=roll)
            )

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


class SortedPath(CachedPath):
    """A skip list in front of the interleaved path; the first of equal entries stays."""

    rule = "first"

    def __init__(
        self, index: HierarchicalIndex, logger: EntryLogger, options: StorageOptions
    ) -> None:
        super().__init__(index, logger, options, options.write_cache)
        self.below = InterleavedPath(index, logger, options)
        self.below.lock, self.below.states = self.lock, self.states
        self._compat = options.compat

    @property
    def unflushed(self) -> EntrySource:
        """The entries of the skip lists and those whose locations are in memory."""
        return LayeredSource(LayeredSource(self.active, self.snapshot), self.below.unflushed)

    def location(self, name: LedgerId, entry: int) -> int | None:
        """Return where a record lies in an entry log."""
        return self.below.location(name, entry)

    def locations(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) as far as they are in entry logs."""
        return self.below.locations(name, first, last)

    def locations_of(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return where the records of these entries lie, 0 where in no entry log."""
        return self.below.locations_of(name, entries)

    def put_locations(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Keep locations in memory until the next flush."""
        self.below.put_locations(name, entries, locations)

    @property
    def source(self) -> EntrySource:
        """Which entries are here; in compat mode without the one that a real listing misses."""
        return LayeredSource(LayeredSource(self.active, self.snapshot), self.below.source)

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record; in compat mode one in a log goes before one in a skip list."""
        if self._compat is None:
            if self.active.count or self.snapshot.count:
                found = self.cached(name, entry)
                if found is not None:
                    return found
            return self.below.read(name, entry)
        record = self.read_logged(name, entry)
        return self.cached(name, entry) if record is None else record

    def knows(self, name: LedgerId) -> bool:
        """Return whether the ledger is known; in compat mode its left-over records do, too."""
        return (
            name in self._met
            or super().knows(name)
            or self.active.last_entry(name) is not None
            or self.snapshot.last_entry(name) is not None
        )

    def forget(self, name: LedgerId) -> None:
        """Drop the ledger's records and locations; in compat mode the skip lists keep theirs."""
        if self.options.compat is None:
            super().forget(name)
        self.below.forget(name)

    def gone(self, name: LedgerId) -> None:
        """Close the ledger's index file."""
        self.below.gone(name)

    def close(self) -> None:
        """Close index, logs and index files."""
        self.below.close()

    def write_snapshot(self) -> None:
        """Append the records in key order; only the hard limit rolls a log meanwhile."""
        with self.lock:
            self.place(roll=False)
            for name, placed in self._placed.items():
                self.below.put_locations(name, *placed)
            if self.below.unflushed.count >= self.options.pending_locations:
                self.below.write_index()

    def after_full_cache(self) -> None:
        """Roll logs that grew past the limit meanwhile; a plain flush does not."""
        self.logger.roll_if_over_limit()

    def write_out(self) -> None:
        """Empty the skip lists, then sync logs and index."""
        self.drain()
        self.below.write_out()

    def checkpoint(self) -> None:
        """Flush, and begin another entry log if the skip lists held anything.

        Not with one log a ledger (`EntryLogManagerForEntryLogPerLedger`), which roll by size.
        """
        self.check_writable()
        if self.drain() and not self.options.entry_log_per_ledger:
            self.logger.roll()
        self.flush()


class DbPath(CachedPath):
    """Two write caches that take turns; the last of equal entries stays; log before index."""

    rule = "last"

    def __init__(
        self, index: RocksIndex, logger: EntryLogger, options: StorageOptions, cache: int
    ) -> None:
        super().__init__(index, logger, options, cache)
        self._rows = index
        self._reader = logger.reader
        self._to_delete: set[LedgerId] = set()

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record; the write buffer is passed over: the index knows only of logs.

        The long way where that fails: compaction may have moved the record meanwhile.
        """
        if self.active.count or self.snapshot.count:
            record = self.cached(name, entry)
            if record is not None:
                return record
        location = self._rows.get(name, entry)
        if location is None:
            return None
        try:
            return self._reader.read(location, name, entry)
        except CorruptionError:
            return self.read_logged(name, entry)

    def run_locations(self, name: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of consecutive entries, by a scan that passes over the keys."""
        return self._rows.run(name, start, count)

    def delete(self, names: Sequence[LedgerId]) -> None:
        """Forget ledgers; in compat mode their locations stay until the next flush."""
        if self.options.compat is None:
            return super().delete(names)
        for name in names:
            self._met.discard(name)
            self.states.delete(name)
            self.forget(name)
        self._to_delete.update(names)
        return None

    def clean_up(self) -> None:
        """Delete what compat mode put off, entries added since included, as upstream does.

        The row of a ledger that was made again meanwhile stays.
        """
        with self.lock:
            while self._to_delete:
                name = self._to_delete.pop()
                row = None if self.states.is_gone(name) else self.states.written(name)
                self.index.delete(name)
                self.states.deleted_from_index(name)
                if row is not None:
                    self.index.set_state(name, row)

    def after_full_cache(self) -> None:
        """Clean up, as after any flush."""
        self.clean_up()

    def write_snapshot(self) -> None:
        """Append the records in key order, sync the log, then put the locations."""
        with self.lock:
            self.place()
        self.logger.flush()
        with self.lock:
            if self.states.dirty:  # no crash may leave entries of a ledger that is not known
                self.states.flush()
                self.index.flush()
            for name, placed in self._placed.items():  # without what was deleted meanwhile
                self.index.put_many(name, *placed)

    def write_out(self) -> None:
        """Empty the caches, then sync locations and ledger rows.

        In compat mode states wait where the cache is empty: upstream's flush ends early there,
        and what was only set since is gone after a reopen.
        """
        some = self.drain()
        self.clean_up()
        with self.lock:
            if some or self.options.compat is None:
                self.states.flush()
            self.index.flush()

    def checkpoint(self) -> None:
        """Flush."""
        self.flush()
