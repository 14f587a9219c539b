"""WritePath: how entries get from memory into entry logs and index, and back.

One storage has one write path, db storage one for each ledger directory. Here is the contract,
and what all of them do alike; `interleaved`, `sorted` and `db` have what each does its own way.
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
        self._touched: set[LedgerId] | None = None
        """The ledgers whose locations changed while a compaction looks at them."""

    # -- what each storage does its own way

    @property
    @abstractmethod
    def unflushed(self) -> EntrySource:
        """Which entries are in memory only."""

    def reserve(self, size: int) -> None:
        """Make room for a record of `size` bytes, flushing if need be; without `lock` held."""

    def fits(self, size: int) -> bool:
        """Return whether a record of `size` bytes can be taken without `reserve`."""
        return True

    @abstractmethod
    def add(self, name: LedgerId, entry: int, record: bytes) -> None:
        """Take one record; the caller holds `lock` and has checked everything."""

    @abstractmethod
    def room(self, batch: RecordBatch) -> int:
        """Return how many records of a batch are taken before a flush may be due; 1 at least."""

    @abstractmethod
    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Take the records of a framed batch, at most `room`; yield how many, as they are taken.

        The caller holds `lock` and has checked everything.
        """

    @abstractmethod
    def cached(self, name: LedgerId, entry: int) -> bytes | None:
        """Return a record that is in memory, None if it is not."""

    @abstractmethod
    def cached_run(self, name: LedgerId, start: int, count: int) -> RecordBatch:
        """Return the records of start, start + 1, ... that are in memory, at most `count`.

        Fewer where they lie in several places there: another call gives what follows.
        """

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

    def _forget_all(self, names: Sequence[LedgerId]) -> None:
        for name in names:
            self._met.discard(name)
            self.touch(name)
            self.states.delete(name)
            self.forget(name)

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
            self.states.ready.clear()
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

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note meanwhile whose locations change, so that `relocate` need not look at others."""
        with self.lock:
            self._touched = set()
        try:
            yield
        finally:
            self._touched = None

    def touch(self, name: LedgerId) -> None:
        """Note that locations of a ledger change; the caller holds `lock`."""
        if self._touched is not None:
            self._touched.add(name)

    def relocate(
        self, name: LedgerId, entries: Int64Array, old: Int64Array, new: Int64Array
    ) -> int:
        """Move index rows that still say `old` to `new`; return how many did.

        What was deleted, or added again, since its record was copied stays as it is. While
        `watching`, in which `old` was read, rows of ledgers that nobody touched are not read
        again.
        """
        with self.lock:
            if self.states.find(name) is None:
                return 0
            if self._touched is None or name in self._touched:
                same = self.locations_of(name, entries) == old
                entries, new = entries[same], new[same]
            if entries.size:
                self.put_locations(name, entries, new)
            return int(entries.size)

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
            batch = self.cached_run(name, at, most)
            if len(batch):
                return batch.within(left)
            return self._logged_run(name, at, most, left)

        return read_run(piece, start, count, max_bytes)

    def _logged_run(self, name: LedgerId, start: int, count: int, left: int) -> RecordBatch:
        """Return records from entry logs; once more where compaction moved some meanwhile."""
        # A compaction may move records, and remove their log, between the look into the index and
        # the read. So what fails is tried again, as long as the index says another thing now.
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
