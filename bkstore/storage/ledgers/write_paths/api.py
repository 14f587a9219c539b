"""WritePath: how entries get from memory into entry logs and index, and back.

A storage has one write path; db storage has one for each ledger directory. This module has the
contract and the common code; `interleaved`, `sorted` and `db` implement the differences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import numpy as np

from bkstore.errors import CorruptionError, ReadOnlyError, SyncFailed, WriteFailed
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.ids import Int64Array, LedgerId, consecutive
from bkstore.index.api import Closing, EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.record_runs import read_run
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.ledger_states import LedgerStates
from bkstore.storage.options import StorageOptions


class WritePath(Closing):
    """Index, entry logs and unflushed entries of some ledgers; `lock` guards writing. Reading takes
    no lock: an entry is in the index before it is dropped from memory, which is searched first."""

    def __init__(self, index: EntryIndex, logger: EntryLogger, options: StorageOptions) -> None:
        self.index = index
        self.logger = logger
        self.options = options
        self.states = LedgerStates(index)
        self.lock = RLock()
        self._seen_ledgers: set[LedgerId] = set()
        self._sync_failure: SyncFailed | None = None
        self._changed_ledgers: set[LedgerId] | None = None
        """The ledgers whose locations changed during a compaction; None outside of one."""

    # -- implemented by each storage

    @property
    @abstractmethod
    def unflushed(self) -> EntrySource:
        """The entries that are in memory only."""

    def reserve(self, size: int) -> None:
        """Make room for a record of `size` bytes, with a flush if needed; `lock` is not held."""

    def fits(self, size: int) -> bool:
        """Return whether a record of `size` bytes can be added without `reserve`."""
        return True

    @abstractmethod
    def add(self, name: LedgerId, entry: int, record: bytes) -> None:
        """Add one record; the caller holds `lock` and has checked everything."""

    @abstractmethod
    def room(self, batch: RecordBatch) -> int:
        """Return how many records of a batch fit before a flush may be due; at least 1."""

    @abstractmethod
    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Add the records of a framed batch, at most `room`; yield the count of each part added.
        The caller holds `lock` and has checked everything."""

    @abstractmethod
    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record from memory, None if it is not there."""

    @abstractmethod
    def cached_run(self, name: LedgerId, start: int, count: int) -> RecordBatch:
        """Return the records of start, start + 1, ... that are in memory, at most `count`; fewer if
        they lie in several buffers: another call returns the following ones."""

    @abstractmethod
    def first_cached(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest entry of first..last whose record is in memory."""

    @property
    def source(self) -> EntrySource:
        """All entries of this path: unflushed ones over the index."""
        return LayeredSource(self.unflushed, self.index)

    def last_entry(self, name: LedgerId) -> int | None:
        """Return the ledger's highest entry id, None if it has no entry."""
        return LayeredSource(self.unflushed, self.index).last_entry(name)

    def knows(self, name: LedgerId) -> bool:
        """Return whether the ledger is known; takes `lock` only for the first such answer."""
        if name in self._seen_ledgers:
            return True
        with self.lock:
            if self.states.find(name) is None:
                return False
            self._seen_ledgers.add(name)  # under the lock, since `delete` removes it
            return True

    def delete(self, names: Sequence[LedgerId]) -> None:
        """Delete ledgers; the caller holds `lock`."""
        self._forget_all(names)
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

    def _forget_all(self, ledger_ids: Sequence[LedgerId]) -> None:
        """Drop the ledgers' states and unflushed entries from memory."""
        for ledger_id in ledger_ids:
            self._seen_ledgers.discard(ledger_id)
            self.touch(ledger_id)
            self.states.delete(ledger_id)
            self.forget(ledger_id)

    def clean_up(self) -> None:
        """Remove deleted ledgers from the index if `delete` postponed that."""

    @abstractmethod
    def forget(self, name: LedgerId) -> None:
        """Drop a deleted ledger's unflushed entries."""

    def gone(self, name: LedgerId) -> None:
        """Finish a deletion after the index has deleted the ledger."""

    @abstractmethod
    def write_out(self) -> None:
        """Make unflushed entries durable, in this storage's order of index and log."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Flush as the real storage does before the journal is truncated."""

    # -- common to all

    def flush(self) -> None:
        """Make everything added durable; after `SyncFailed` the path takes no more writes."""
        self.check_writable()
        with self.noting_failure():
            self.write_out()

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Refuse writes from now on if the ``with`` block raises `SyncFailed`."""
        try:
            yield
        except SyncFailed as error:
            self._sync_failure = error
            self.states.ready.clear()
            raise

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` after a failed sync, since it is unknown which writes were lost."""
        if self._sync_failure is not None:
            raise ReadOnlyError(
                f"no more writes after a failed sync ({self._sync_failure}); reopen"
            )

    def location(self, name: LedgerId, entry: int) -> int | None:
        """Return a record's entry log location, None if it is in no log."""
        return self.index.get(name, entry)

    def locations(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of those of first..last that are in entry logs."""
        return self.index.items(name, first, last)

    def run_locations(self, name: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of start, start + 1, ... up to a gap, at most `count`."""
        entries, locations = self.locations(name, start, start + count - 1)
        return locations[: consecutive(entries, start)]

    def locations_of(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return the log locations of these entries, 0 for those in no log."""
        return self.index.get_many(name, entries)

    def put_locations(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Set the locations of records; durable at the next flush."""
        self.index.put_many(name, entries, locations)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record which ledgers' locations change, so that `relocate` rereads only those."""
        with self.lock:
            self._changed_ledgers = set()
        try:
            yield
        finally:
            self._changed_ledgers = None

    def touch(self, name: LedgerId) -> None:
        """Note that a ledger's locations change; the caller holds `lock`."""
        if self._changed_ledgers is not None:
            self._changed_ledgers.add(name)

    def relocate(
        self, name: LedgerId, entries: Int64Array, old: Int64Array, new: Int64Array
    ) -> int:
        """Change index rows that still have location `old` to `new`; return how many did.

        Entries deleted or added again since the copy stay as they are. Within `watching`, in which
        the caller read `old`, rows of unchanged ledgers are not read again.
        """
        with self.lock:
            if self.states.find(name) is None:
                return 0
            if self._changed_ledgers is None or name in self._changed_ledgers:
                is_unmoved = self.locations_of(name, entries) == old
                entries, new = entries[is_unmoved], new[is_unmoved]
            if entries.size:
                self.put_locations(name, entries, new)
            return int(entries.size)

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record, None if the entry is absent."""
        record = self.cached(name, entry)
        return self.read_logged(name, entry) if record is None else record

    def read_logged(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record from an entry log; retry if compaction moved it meanwhile."""
        location = self.location(name, entry)
        if location is None:
            return None
        try:
            return self.logger.read(location, name, entry)
        except CorruptionError:
            new_location = self.location(name, entry)
            if new_location is None or new_location == location:
                raise
            return self.logger.read(new_location, name, entry)

    def read_run(self, name: LedgerId, start: int, count: int, max_bytes: int) -> RecordBatch:
        """Return the records of start, start + 1, ... up to a gap, `count` or about `max_bytes`;
        empty if `start` is absent. One index scan (in growing parts) and coalesced reads."""

        def read_part(part_start: int, max_count: int, max_part_bytes: int) -> RecordBatch:
            batch = self.cached_run(name, part_start, max_count)
            if len(batch):
                return batch.within(max_part_bytes)
            return self._logged_run(name, part_start, max_count, max_part_bytes)

        return read_run(read_part, start, count, max_bytes)

    def _logged_run(
        self, ledger_id: LedgerId, start: int, count: int, max_bytes: int
    ) -> RecordBatch:
        """Return records from entry logs; retry if compaction moved some meanwhile."""
        # A compaction may move records, and remove their log, between the index look-up and the
        # read. So a failed read is retried as long as the index has changed since.
        locations = self._run_without_newer(ledger_id, start, count)
        while True:
            read_error = None
            try:
                batch = self._located_run(ledger_id, start, locations, max_bytes)
                if batch.stopped is None:
                    return batch
            except CorruptionError as error:
                read_error = error
            new_locations = self._run_without_newer(ledger_id, start, count)
            if np.array_equal(new_locations, locations):
                if read_error is not None:
                    raise read_error
                return batch
            locations = new_locations

    def _run_without_newer(self, ledger_id: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of entries from `start` on, up to a newer copy in memory."""
        locations = self.run_locations(ledger_id, start, count)
        stop = locations.size
        first_newer = self.first_cached(ledger_id, start, start + stop - 1) if stop else None
        return locations if first_newer is None else locations[: first_newer - start]

    def _located_run(
        self, ledger_id: LedgerId, start: int, locations: Int64Array, max_bytes: int
    ) -> RecordBatch:
        """Return the records at these locations; entry ids count from `start`."""
        entries = np.arange(start, start + locations.size)
        try:
            self.logger.push()
        except WriteFailed:  # disk full: read what the write buffer holds, record by record
            ids_and_locations = zip(entries.tolist(), locations.tolist())
            records = [
                self.logger.read(location, ledger_id, entry)
                for entry, location in ids_and_locations
            ]
            return RecordBatch.of(records, entries)
        return self.logger.reader.read_many(ledger_id, entries, locations, max_bytes)

    def close(self) -> None:
        """Close index and logs; unflushed entries are dropped."""
        try:
            self.logger.close()
        finally:
            self.index.close()
