"""WritePath: how entries get from memory into entry logs and index, and back.

One storage has one write path, db storage one for each ledger directory. Here is the contract
and the simplest of the three, that of interleaved storage (`InterleavedLedgerStorage`): records
go to the entry log at once, their locations wait in memory, as its index pages do. `cached_path`
has the other two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from bkstore.errors import CorruptionError, ReadOnlyError, SyncFailed, WriteFailed
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Closing, EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.reader import RecordBatch
from bkstore.storage.entry_log.record_runs import consecutive, read_run
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.ledger_states import LedgerStates
from bkstore.storage.ledgers.write_paths.slot_reader import SlotReader
from bkstore.storage.ledgers.write_paths.write_cache import Pending
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex

__all__ = ["InterleavedPath", "WritePath"]


class WritePath(Closing):
    """Index, entry logs and what is unflushed of some ledgers; `lock` guards writing.

    Reading takes no lock: it looks at memory first, then at the index, which is told of an
    entry before memory forgets it.
    """

    def __init__(self, index: EntryIndex, logger: EntryLogger, options: StorageOptions) -> None:
        self.index = index
        self.logger = logger
        self.options = options
        self.states = LedgerStates(index)
        self.lock = RLock()
        self._met: set[LedgerId] = set()
        self._failed: SyncFailed | None = None

    # -- what each storage does its own way

    @property
    @abstractmethod
    def unflushed(self) -> EntrySource:
        """Which entries are in memory only."""

    def reserve(self, size: int) -> None:
        """Make room for a record of `size` bytes, flushing if need be; without `lock` held."""

    @abstractmethod
    def add(self, name: LedgerId, entry: int, record: bytes) -> None:
        """Take one record; the caller holds `lock` and has checked everything."""

    @abstractmethod
    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record that is in memory, None if it is not."""

    @abstractmethod
    def cached_run(self, name: LedgerId, start: int, count: int) -> list[bytes]:
        """Return the records of start, start + 1, ... that are in memory, at most `count`."""

    @abstractmethod
    def first_cached(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest entry of first..last whose record is in memory."""

    @property
    def source(self) -> EntrySource:
        """Which entries are here: unflushed ones over the index."""
        return LayeredSource(self.unflushed, self.index)

    def last_entry(self, name: LedgerId) -> int | None:
        """Return the highest entry here, None if there is none."""
        return LayeredSource(self.unflushed, self.index).last_entry(name)

    def knows(self, name: LedgerId) -> bool:
        """Return whether the ledger is known; without `lock` where that was so before."""
        if name in self._met:
            return True
        with self.lock:
            if self.states.find(name) is None:
                return False
            self._met.add(name)  # under the lock: `delete` takes it out
            return True

    def delete(self, names: Sequence[LedgerId]) -> None:
        """Forget ledgers; the caller holds `lock`."""
        for name in names:
            self._met.discard(name)
            self.states.delete(name)
            self.forget(name)
        try:
            with self.noting_failure():
                self.index.delete_many(names)
        finally:
            for name in names:
                self.gone(name)
                if self.options.compat is None:  # upstream lets a ledger's own log stay open
                    self.logger.ledger_deleted(name)
        for name in names:
            self.states.deleted_from_index(name)

    def clean_up(self) -> None:
        """Take deleted ledgers out of the index, where `delete` put that off."""

    @abstractmethod
    def forget(self, name: LedgerId) -> None:
        """Drop a deleted ledger's unflushed entries."""

    def gone(self, name: LedgerId) -> None:
        """Do what is left when the index has forgotten a ledger."""

    @abstractmethod
    def write_out(self) -> None:
        """Make what is unflushed durable, in this storage's order of index and log."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Flush as the real storage does when the journal is about to be cut."""

    # -- common to all

    def flush(self) -> None:
        """Make everything added durable; after `SyncFailed` the path takes no more writes."""
        self.check_writable()
        with self.noting_failure():
            self.write_out()

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Take no more writes after a `SyncFailed` that leaves here."""
        try:
            yield
        except SyncFailed as error:
            self._failed = error
            raise

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` after a sync that failed: what was lost by it is not known."""
        if self._failed is not None:
            raise ReadOnlyError(f"no more writes after a failed sync ({self._failed}); reopen")

    def location(self, name: LedgerId, entry: int) -> int | None:
        """Return where a record lies in an entry log, None if it is in none."""
        return self.index.get(name, entry)

    def locations(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last as far as they are in entry logs."""
        return self.index.items(name, first, last)

    def run_locations(self, name: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of start, start + 1, ... up to a gap, at most `count`."""
        entries, locations = self.locations(name, start, start + count - 1)
        return locations[: consecutive(entries, start)]

    def locations_of(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return where the records of these entries lie, 0 where in no entry log."""
        return self.index.get_many(name, entries)

    def put_locations(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Note where records lie now; durable at the next flush."""
        self.index.put_many(name, entries, locations)

    def relocate(
        self, name: LedgerId, entries: Int64Array, old: Int64Array, new: Int64Array
    ) -> int:
        """Move index rows that still say `old` to `new`; return how many did.

        What was deleted, or added again, since its record was copied stays as it is.
        """
        with self.lock:
            if self.states.find(name) is None:
                return 0
            same = self.locations_of(name, entries) == old
            if same.any():
                self.put_locations(name, entries[same], new[same])
            return int(same.sum())

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record, None if the entry is not here."""
        record = self.cached(name, entry)
        return self.read_logged(name, entry) if record is None else record

    def read_logged(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record from an entry log; once more where compaction moved it meanwhile."""
        location = self.location(name, entry)
        if location is None:
            return None
        try:
            return self.logger.read(location, name, entry)
        except CorruptionError:
            again = self.location(name, entry)
            if again is None or again == location:
                raise
            return self.logger.read(again, name, entry)

    def read_run(self, name: LedgerId, start: int, count: int, max_bytes: int) -> RecordBatch:
        """Return the records of start, start + 1, ... up to a gap, `count` or about `max_bytes`.

        One index scan (in growing pieces) and coalesced reads. Empty if `start` is not here.
        """

        def piece(at: int, most: int, left: int) -> RecordBatch:
            records = self.cached_run(name, at, most)
            if records:
                return RecordBatch.of(records, np.arange(at, at + len(records)), left)
            return self._logged_run(name, at, most, left)

        return read_run(piece, start, count, max_bytes)

    def _logged_run(self, name: LedgerId, start: int, count: int, left: int) -> RecordBatch:
        """Return records from entry logs; once more where compaction moved some meanwhile."""
        locations = self._unchanged_run(name, start, count)
        while True:
            failed = None
            try:
                batch = self._located_run(name, start, locations, left)
                if batch.stopped is None:
                    return batch
            except CorruptionError as error:
                failed = error
            again = self._unchanged_run(name, start, count)
            if np.array_equal(again, locations):
                if failed is not None:
                    raise failed
                return batch
            locations = again

    def _unchanged_run(self, name: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of entries from `start` on, up to one that memory has anew."""
        locations = self.run_locations(name, start, count)
        stop = locations.size
        newer = self.first_cached(name, start, start + stop - 1) if stop else None
        return locations if newer is None else locations[: newer - start]

    def _located_run(
        self, name: LedgerId, start: int, locations: Int64Array, left: int
    ) -> RecordBatch:
        entries = np.arange(start, start + locations.size)
        try:
            self.logger.push()
        except WriteFailed:  # a full disk is no reason not to read what is in the write buffer
            found = zip(entries.tolist(), locations.tolist())
            records = [self.logger.read(place, name, entry) for entry, place in found]
            return RecordBatch.of(records, entries)
        return self.logger.reader.read_many(name, entries, locations, left)

    def close(self) -> None:
        """Close index and logs; what is unflushed and was not written out is dropped."""
        try:
            self.logger.close()
        finally:
            self.index.close()


class InterleavedPath(WritePath):
    """Records straight to the entry log, locations in memory until a flush.

    Flush order: as the option `flush_order` says; upstream's is index first, then logs.
    """

    def __init__(
        self, index: HierarchicalIndex, logger: EntryLogger, options: StorageOptions
    ) -> None:
        super().__init__(index, logger, options)
        self._tree = index
        self._slots = SlotReader(index)
        self._reader = logger.reader
        self.pending: Pending[int] = Pending("last")
        """The locations that wait for a flush."""

    @property
    def unflushed(self) -> Pending[int]:
        """The entries whose locations are in memory."""
        return self.pending

    @property
    def source(self) -> EntrySource:
        """Which entries are here; in compat mode without the one that a real listing misses."""
        if self.options.compat is None:
            return super().source
        return LayeredSource(self.listed, self.index)

    @property
    def listed(self) -> EntrySource:
        """The entries in memory as the real storage lists them."""
        from bkstore.storage.ledgers.write_paths.bookkeeper_compat import PagewisePending

        return PagewisePending(self.pending, self._tree, self.options.page_size)

    def add(self, name: LedgerId, entry: int, record: bytes, *, roll: bool = True) -> None:
        """Append to the entry log; note the location."""
        location = self.logger.add(name, record, roll=roll)
        self.pending.put(name, entry, location)
        if self.pending.count >= self.options.pending_locations:
            self.write_index()

    def put_locations(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Keep locations in memory until the next flush."""
        self.note(name, entries.tolist(), locations.tolist())

    def note(self, name: LedgerId, entries: list[int], locations: list[int]) -> None:
        """Keep locations in memory, given as plain integers."""
        for entry, location in zip(entries, locations):
            self.pending.put(name, entry, location)

    def locations_of(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return locations in memory, else those of the index."""
        found = self.index.get_many(name, entries)
        for at, entry in enumerate(entries.tolist()):
            found[at] = self.pending.get(name, entry) or found[at]
        return found

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record, None if the entry is not here.

        Where the index file says the place, the write buffer is passed over: logs are written
        before the index is. The long way where that fails: with the order of flushes turned
        round it may be in the buffer, or compaction may have moved it meanwhile.
        """
        pending = self.pending
        if not pending.count or pending.get(name, entry) is None:
            location = self._slots.get(name, entry)
            if location is None:
                return None
            try:
                return self._reader.read(location, name, entry)
            except CorruptionError:
                return self.read_logged(name, entry)
        return self.read_logged(name, entry)

    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return None: no record is kept in memory."""
        return None

    def cached_run(self, name: LedgerId, start: int, count: int) -> list[bytes]:
        """Return nothing: no record is kept in memory."""
        return []

    def location(self, name: LedgerId, entry: int) -> int | None:
        """Return the location in memory, else that of the index."""
        pending = self.pending
        place = pending.get(name, entry) if pending.count else None
        return place or self._slots.get(name, entry)

    def locations(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, Int64Array]:
        """Return both kinds merged; one in memory wins."""
        entries, places = self.pending.items(name, first, last)
        below = self.index.items(name, first, last)
        if not entries.size:
            return below
        above = np.array(places, np.int64)
        if not below[0].size:
            return entries, above
        entries = np.concatenate((entries, below[0]))
        locations = np.concatenate((above, below[1]))
        order = np.argsort(entries, kind="stable")
        entries, locations = entries[order], locations[order]
        keep = np.concatenate(([True], entries[1:] != entries[:-1]))
        return entries[keep], locations[keep]

    def first_cached(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return None: no record is kept in memory."""
        return None

    def forget(self, name: LedgerId) -> None:
        """Drop the ledger's locations."""
        self.pending.drop(name)

    def gone(self, name: LedgerId) -> None:
        """Close the ledger's index file."""
        self._slots.forget(name)

    def close(self) -> None:
        """Close the index files as well."""
        try:
            super().close()
        finally:
            self._slots.close()

    def write_index(self) -> None:
        """Write locations and states into the index files, without a sync (pages evicted).

        Log first: the records are synced before, so that no page that the system writes on its
        own points at what a crash may take.
        """
        with self.lock, self.noting_failure():
            if not self.options.index_first:
                self.logger.flush()
            for name, entries, locations in self.pending.tables():
                self.index.put_many(name, entries, locations)
            self.states.flush()
            self.pending = Pending("last")

    def write_out(self) -> None:
        """Sync logs and index in the order of the option `flush_order`."""
        with self.lock:
            self.write_index()
            self.index.flush()
            if self.options.index_first:
                self.logger.flush()

    def checkpoint(self) -> None:
        """Flush everything: what a checkpoint promises, whatever log it lies in."""
        self.flush()
