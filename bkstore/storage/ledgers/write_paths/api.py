"""WritePath: how entries get from memory into entry logs and index, and back.

A storage has one write path; db storage has one for each ledger directory. This module has the
contract and the common code; `interleaved`, `sorted` and `db` implement the differences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import NamedTuple

import numpy as np

from bkstore.errors import CorruptionError, ReadOnlyError, SyncFailed, WriteFailed
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.ids import EntryLocations, Int64Array, LedgerId, count_consecutive
from bkstore.index.api import Closeable, EntryIndex, EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.record_runs import read_run
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.ledger_states import LedgerStates
from bkstore.storage.options import StorageOptions


class Move(NamedTuple):
    """Entries of a ledger that were copied: their old locations, and those of the copies."""

    ledger_id: LedgerId
    entry_ids: Int64Array
    old_locations: Int64Array
    new_locations: Int64Array


class WritePath(Closeable):
    """Index, entry logs and unflushed entries of some ledgers; `lock` guards writing. Reading takes
    no lock: an entry is in the index before it is dropped from memory, which is searched first."""

    def __init__(self, index: EntryIndex, logger: EntryLogger, options: StorageOptions) -> None:
        self.index = index
        self.logger = logger
        self.options = options
        self.states = LedgerStates(index)
        self.lock = RLock()
        self._seen_ledgers: set[LedgerId] = set()
        """Ledgers known to exist, which `has_ledger` finds without the lock."""
        self._sync_failure: SyncFailed | None = None
        """The first failed sync, after which writes are refused."""
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
    def add(self, ledger_id: LedgerId, entry_id: int, record: bytes) -> None:
        """Add one record; the caller holds `lock` and has checked everything."""

    @abstractmethod
    def count_fitting(self, batch: RecordBatch) -> int:
        """Return how many records of a batch fit before a flush may be due; at least 1."""

    @abstractmethod
    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Add the records of a framed batch, at most `count_fitting`; yield the count of each part
        added. The caller holds `lock` and has checked everything."""

    def get_cached(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return a record from memory, None if it is not there; here none is."""
        return None

    def get_cached_run(self, ledger_id: LedgerId, start: int, count: int) -> RecordBatch:
        """Return the records of start, start + 1, ... that are in memory, at most `count`; fewer if
        they lie in several buffers: another call returns the following ones."""
        return RecordBatch.of([], [])

    def find_first_cached(self, ledger_id: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest entry of first..last whose record is in memory."""
        return None

    @property
    def source(self) -> EntrySource:
        """All entries of this path: unflushed ones over the index."""
        return LayeredSource(self.unflushed, self.index)

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        """Return the ledger's highest entry id, None if it has no entry."""
        return LayeredSource(self.unflushed, self.index).last_entry(ledger_id)

    def has_ledger(self, ledger_id: LedgerId) -> bool:
        """Return whether the ledger is known; takes `lock` only for the first such answer."""
        if ledger_id in self._seen_ledgers:
            return True
        with self.lock:
            if self.states.find(ledger_id) is None:
                return False
            self._seen_ledgers.add(ledger_id)  # under the lock, since `delete` removes it
            return True

    def delete(self, ledger_ids: Sequence[LedgerId]) -> None:
        """Delete ledgers; the caller holds `lock`."""
        self._forget_all(ledger_ids)
        try:
            with self.noting_failure():
                self.index.delete_many(ledger_ids)
        finally:  # after an error too: the index may have deleted some of them
            for ledger_id in ledger_ids:
                self.after_delete(ledger_id)
                if self.options.compat is None:  # BookKeeper lets a ledger's own log stay open
                    self.logger.close_ledger_log(ledger_id)
        for ledger_id in ledger_ids:
            self.states.note_deleted_from_index(ledger_id)

    def _forget_all(self, ledger_ids: Sequence[LedgerId]) -> None:
        """Drop the ledgers' states and unflushed entries from memory."""
        for ledger_id in ledger_ids:
            self._seen_ledgers.discard(ledger_id)
            self.note_changed(ledger_id)
            self.states.delete(ledger_id)
            self.drop_unflushed(ledger_id)

    def clean_up(self) -> None:
        """Remove deleted ledgers from the index if `delete` postponed that."""

    @abstractmethod
    def drop_unflushed(self, ledger_id: LedgerId) -> None:
        """Drop a deleted ledger's unflushed entries."""

    def after_delete(self, ledger_id: LedgerId) -> None:
        """Finish a deletion after the index has deleted the ledger."""

    @abstractmethod
    def write_out(self) -> None:
        """Make unflushed entries durable, in this storage's order of index and log."""

    def checkpoint(self) -> None:
        """Flush as the real storage does before the journal is truncated."""
        self.flush()

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
            self.states.fast_path_ledgers.clear()  # the fast path checks no failure
            raise

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` after a failed sync, since it is unknown which writes were lost."""
        if self._sync_failure is not None:
            cause = self._sync_failure
            raise ReadOnlyError(f"no more writes after a failed sync ({cause}); reopen")

    def get_location(self, ledger_id: LedgerId, entry_id: int) -> int | None:
        """Return a record's entry log location, None if it is in no log."""
        return self.index.get(ledger_id, entry_id)

    def list_locations(self, ledger_id: LedgerId, first: int, last: int) -> EntryLocations:
        """Return (entries, locations) of those of first..last that are in entry logs."""
        return self.index.items(ledger_id, first, last)

    def get_location_run(self, ledger_id: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of start, start + 1, ... up to a gap, at most `count`."""
        entries, locations = self.list_locations(ledger_id, start, start + count - 1)
        return locations[: count_consecutive(entries, start)]

    def get_locations(self, ledger_id: LedgerId, entry_ids: Int64Array) -> Int64Array:
        """Return the log locations of these entries, 0 for those in no log."""
        return self.index.get_many(ledger_id, entry_ids)

    def put_locations(self, ledger: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Set the locations of records; durable at the next flush."""
        self.index.put_many(ledger, entries, locations)

    @contextmanager
    def tracking_changes(self) -> Iterator[None]:
        """Record which ledgers' locations change, so that `relocate` rereads only those."""
        with self.lock:
            self._changed_ledgers = set()
        try:
            yield
        finally:
            self._changed_ledgers = None

    def note_changed(self, ledger_id: LedgerId) -> None:
        """Note that a ledger's locations change; the caller holds `lock`."""
        if self._changed_ledgers is not None:
            self._changed_ledgers.add(ledger_id)

    def relocate(self, move: Move) -> int:
        """Change index rows that still have the old locations to the new ones; return how many.

        Entries deleted or added again since the copy stay as they are. Within `tracking_changes`,
        in which the caller read the old locations, rows of unchanged ledgers are not read again.
        """
        with self.lock:
            entry_ids, new_locations = self.find_unmoved(move)
            if entry_ids.size:
                self.put_locations(move.ledger_id, entry_ids, new_locations)
            return int(entry_ids.size)

    def relocate_many(self, moves: Sequence[Move]) -> int:
        """`relocate` the entries of many moves; return how many rows changed."""
        return sum(self.relocate(move) for move in moves)

    def find_unmoved(self, move: Move) -> EntryLocations:
        """Return (entries, new locations) of the rows that `relocate` is to change; the caller
        holds `lock`. A ledger deleted since the copy has none."""
        ledger_id, entry_ids, old_locations, new_locations = move
        if self.states.find(ledger_id) is None:
            return entry_ids[:0], new_locations[:0]
        if self._changed_ledgers is None or ledger_id in self._changed_ledgers:
            is_unmoved = self.get_locations(ledger_id, entry_ids) == old_locations
            entry_ids, new_locations = entry_ids[is_unmoved], new_locations[is_unmoved]
        return entry_ids, new_locations

    def read(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return one record, None if the entry is absent."""
        record = self.get_cached(ledger_id, entry_id)
        return self.read_logged(ledger_id, entry_id) if record is None else record

    def read_logged(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return a record from an entry log; retry if compaction moved it meanwhile."""
        location = self.get_location(ledger_id, entry_id)
        if location is None:
            return None
        try:
            return self.logger.read(location, ledger_id, entry_id)
        except CorruptionError:
            new_location = self.get_location(ledger_id, entry_id)
            if new_location is None or new_location == location:
                raise
            return self.logger.read(new_location, ledger_id, entry_id)

    def read_run(self, ledger_id: LedgerId, start: int, count: int, max_bytes: int) -> RecordBatch:
        """Return the records of start, start + 1, ... up to a gap, `count` or about `max_bytes`;
        empty if `start` is absent. One index scan (in growing parts) and coalesced reads."""

        def read_part(part_start: int, max_count: int, max_part_bytes: int) -> RecordBatch:
            """Return records that are in the cache, else those in the log."""
            batch = self.get_cached_run(ledger_id, part_start, max_count)
            if len(batch):
                return batch.limit_bytes(max_part_bytes)
            return self._logged_run(ledger_id, part_start, max_count, max_part_bytes)

        return read_run(read_part, start, count, max_bytes)

    def _logged_run(self, ledger: LedgerId, start: int, count: int, max_bytes: int) -> RecordBatch:
        """Return consecutive records from entry logs, up to one that was added again and is in
        memory. Damage at the first record is raised; later damage is in `stopped`."""
        # A compaction may move records, and remove their log, between the index look-up and the
        # read. So a failed read is retried as long as the index has changed since.
        locations = self._logged_locations(ledger, start, count)
        while True:
            read_error = None
            try:
                batch = self._located_run(ledger, start, locations, max_bytes)
                if batch.stopped is None:
                    return batch
            except CorruptionError as error:
                read_error = error
            new_locations = self._logged_locations(ledger, start, count)
            if np.array_equal(new_locations, locations):
                if read_error is not None:
                    raise read_error
                return batch
            locations = new_locations

    def _logged_locations(self, ledger_id: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of entries from `start` on, up to a newer copy in memory."""
        locations = self.get_location_run(ledger_id, start, count)
        if not locations.size:
            return locations
        first_newer = self.find_first_cached(ledger_id, start, start + locations.size - 1)
        return locations if first_newer is None else locations[: first_newer - start]

    def _located_run(
        self, ledger_id: LedgerId, start: int, locations: Int64Array, max_bytes: int
    ) -> RecordBatch:
        """Return the records at these locations; entry ids count from `start`."""
        entries = np.arange(start, start + locations.size)
        try:
            self.logger.write_buffered()
        except WriteFailed:  # disk full: read what the write buffer holds, record by record
            rows = zip(entries.tolist(), locations.tolist())
            records = [self.logger.read(location, ledger_id, entry) for entry, location in rows]
            return RecordBatch.of(records, entries)
        return self.logger.reader.read_many(ledger_id, entries, locations, max_bytes)

    def close(self) -> None:
        """Close index and logs; unflushed entries are dropped."""
        try:
            self.logger.close()
        finally:
            self.index.close()
