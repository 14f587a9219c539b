"""The write path of interleaved storage: records to the log at once, locations in memory, as the
index pages of `InterleavedLedgerStorage`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE
from bkstore.ids import EntryLocations, Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.ledgers.write_paths.pending_values import PendingLocations, merge_locations
from bkstore.storage.ledgers.write_paths.slot_reader import SlotReader
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex


class InterleavedWritePath(WritePath):
    """Records straight to the entry log, locations in memory until a flush, in the order of the
    option `flush_order`; BookKeeper's is index first, then logs."""

    def __init__(self, tree: HierarchicalIndex, logs: EntryLogger, options: StorageOptions) -> None:
        super().__init__(tree, logs, options)
        self._tree = tree
        self._slots = SlotReader(tree)
        self._reader = logs.reader
        self.pending = PendingLocations()
        """The locations that wait for a flush."""

    @property
    def unflushed(self) -> PendingLocations:
        """The entries whose locations are in memory."""
        return self.pending

    @property
    def source(self) -> EntrySource:
        """All entries; in compat mode without the one that a real listing misses."""
        if self.options.compat is None:
            return super().source
        return LayeredSource(self.unflushed_as_listed, self.index)

    @property
    def unflushed_as_listed(self) -> EntrySource:
        """The entries in memory as the real storage lists them."""
        return _PagewisePending(self.pending, self._tree, self.options.page_size)

    def add(self, ledger_id: LedgerId, entry_id: int, record: bytes) -> None:
        """Append to the entry log; note the location."""
        location = self.logger.add(ledger_id, record)
        pending = self.pending
        pending.put(ledger_id, entry_id, location)
        if self._changed_ledgers is not None:
            self.note_changed(ledger_id)
        if pending.count >= self.options.pending_locations:
            self.write_index()

    def count_fitting(self, batch: RecordBatch) -> int:
        """Return how many more locations may wait in memory."""
        return max(self.options.pending_locations - self.pending.count, 1)

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Iterator[int]:
        """Append to the entry log, and note the locations. Yield the number of records in each run
        that went to one log, once it is stored: an error in the next run leaves it so."""
        start = 0
        for locations in self.logger.add_batch(batch, ledgers):
            stop = start + locations.size
            logged, entries = ledgers.between(start, stop), batch.entries[start:stop]
            rows_by_ledger = logged.rows_by_ledger(locations.size)
            for ledger_id, rows in zip(logged.ledger_ids, rows_by_ledger):
                self.pending.put_many(ledger_id, entries[rows], locations[rows])
                self.note_changed(ledger_id)
            yield locations.size
            start = stop
            if self.pending.count >= self.options.pending_locations:
                self.write_index()

    def put_locations(self, ledger: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Keep locations in memory until the next flush."""
        self.pending.put_many(ledger, entries, locations)

    def get_locations(self, ledger_id: LedgerId, entry_ids: Int64Array) -> Int64Array:
        """Return locations in memory, else those of the index."""
        unflushed = self.pending.get_many(ledger_id, entry_ids)
        return np.where(unflushed != 0, unflushed, self.index.get_many(ledger_id, entry_ids))

    def read(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return one record, None if the entry is absent.

        A location in the index file, not among the pending ones, is read from the log without a
        look at the write buffer: logs are written before the index. If this fails, `read_logged`
        retries: with the flush order reversed (`index_first`) the record may be in the buffer, or
        compaction may have moved it.
        """
        pending = self.pending
        if not pending.count or pending.get(ledger_id, entry_id) is None:
            location = self._slots.get(ledger_id, entry_id)
            if location is None:
                return None
            try:
                return self._reader.read(location, ledger_id, entry_id)
            except CorruptionError:
                return self.read_logged(ledger_id, entry_id)
        return self.read_logged(ledger_id, entry_id)

    def get_location(self, ledger_id: LedgerId, entry_id: int) -> int | None:
        """Return the location in memory, else that of the index."""
        pending = self.pending
        unflushed = pending.get(ledger_id, entry_id) if pending.count else None
        return unflushed or self._slots.get(ledger_id, entry_id)

    def list_locations(self, ledger_id: LedgerId, first: int, last: int) -> EntryLocations:
        """Return locations in memory merged with those of the index; the former win."""
        unflushed = self.pending.items(ledger_id, first, last)
        flushed = self.index.items(ledger_id, first, last)
        return merge_locations([unflushed, flushed]) if unflushed[0].size else flushed

    def drop_unflushed(self, ledger_id: LedgerId) -> None:
        """Drop the ledger's locations."""
        self.pending.drop(ledger_id)

    def after_delete(self, ledger_id: LedgerId) -> None:
        """Close the ledger's index file."""
        self._slots.close_file(ledger_id)

    def close(self) -> None:
        """Close the index files as well."""
        try:
            super().close()
        finally:
            self._slots.close()

    def write_index(self) -> None:
        """Write the pending locations and ledger states to the index files, without a sync, as a
        real bookie writes the pages that its cache evicts. Syncs the records first, unless the
        option `index_first` is set: the system may write an index page before its records, and a
        crash would leave the page pointing at nothing."""
        with self.lock, self.noting_failure():
            if not self.options.index_first:
                self.logger.flush()
            for ledger_id, entries, locations in self.pending.by_ledger():
                self.index.put_many(ledger_id, entries, locations)
            self.states.flush()
            self.pending = PendingLocations()

    def write_out(self) -> None:
        """Sync logs and index in the order of the option `flush_order`."""
        with self.lock:
            self.write_index()
            self.index.flush()
            if self.options.index_first:
                self.logger.flush()


class _PagewisePending(EntrySource):
    """Locations in memory over index files, listed page by page with an exclusive upper bound.

    `IndexInMemPageMgr.PageEntriesIterableImpl` visits pages while their first entry is *below* the
    highest in memory: if that is 0, 1024, ... and its page is not in the file, it is not listed.
    """

    def __init__(self, pending: EntrySource, index: HierarchicalIndex, page_size: int) -> None:
        self._pending = pending
        self._index = index
        self._page_size = page_size

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        return self._pending.ledgers(scope)

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids in memory, without the one that the real listing misses."""
        entry_ids = self._pending.entries(ledger, first, last)
        if entry_ids.size and self._is_missed_by_bookkeeper(
            LedgerId.of(ledger), int(entry_ids[-1])
        ):
            return entry_ids[:-1]
        return entry_ids

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry in memory, listed or not."""
        return self._pending.last_entry(ledger)

    def _is_missed_by_bookkeeper(self, ledger_id: LedgerId, highest: int) -> bool:
        """Return whether the listing of a real bookie misses `highest`: the highest entry in memory
        does so if it begins a page that is not in the index file yet."""
        slots_per_page = self._page_size // SLOT_SIZE
        if highest % slots_per_page or highest != self._pending.last_entry(ledger_id):
            return False
        path = self._index.path(ledger_id)
        slots_bytes = os.path.getsize(path) - HEADER_SIZE if path and os.path.exists(path) else 0
        pages_in_file = slots_bytes // self._page_size
        return highest >= slots_per_page * pages_in_file
