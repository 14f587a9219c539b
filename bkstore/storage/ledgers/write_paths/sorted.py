"""The write path of sorted storage: a skip list (`EntryMemTable`) before the interleaved path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.ids import EntryLocations, Int64Array, LedgerId
from bkstore.index.api import EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.cached import CachedWritePath
from bkstore.storage.ledgers.write_paths.interleaved import InterleavedWritePath
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex


class SortedWritePath(CachedWritePath):
    """A skip list in front of the interleaved path; the first of equal entries stays."""

    duplicates = "first"

    def __init__(self, tree: HierarchicalIndex, logs: EntryLogger, options: StorageOptions) -> None:
        super().__init__(tree, logs, options, options.write_cache)
        self.interleaved = InterleavedWritePath(tree, logs, options)
        self.interleaved.lock, self.interleaved.states = self.lock, self.states
        self._compat = options.compat

    @property
    def unflushed(self) -> EntrySource:
        """The entries of the skip lists, and those whose locations are in memory."""
        return LayeredSource(super().unflushed, self.interleaved.unflushed)

    def get_location(self, ledger_id: LedgerId, entry_id: int) -> int | None:
        """Inherited."""
        return self.interleaved.get_location(ledger_id, entry_id)

    def list_locations(self, ledger_id: LedgerId, first: int, last: int) -> EntryLocations:
        """Inherited."""
        return self.interleaved.list_locations(ledger_id, first, last)

    def get_locations(self, ledger_id: LedgerId, entry_ids: Int64Array) -> Int64Array:
        """Inherited."""
        return self.interleaved.get_locations(ledger_id, entry_ids)

    def put_locations(self, ledger: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Inherited."""
        self.interleaved.put_locations(ledger, entries, locations)

    @property
    def source(self) -> EntrySource:
        """All entries; in compat mode without the one that a real listing misses."""
        return LayeredSource(super().unflushed, self.interleaved.source)

    def read(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return one record, from memory before the log. In compat mode, which copies BookKeeper's
        behavior, a record in a log precedes a newer one in memory."""
        if self._compat is None:
            if self.active_cache.count or self.snapshot.count:
                cached_record = self.get_cached(ledger_id, entry_id)
                if cached_record is not None:
                    return cached_record
            return self.interleaved.read(ledger_id, entry_id)
        record = self.read_logged(ledger_id, entry_id)
        return self.get_cached(ledger_id, entry_id) if record is None else record

    def has_ledger(self, ledger_id: LedgerId) -> bool:
        """Return whether the ledger is known. In compat mode a deleted one still is while a cache
        has its records, as in BookKeeper."""
        return (
            ledger_id in self._seen_ledgers
            or super().has_ledger(ledger_id)
            or self.active_cache.last_entry(ledger_id) is not None
            or self.snapshot.last_entry(ledger_id) is not None
        )

    def drop_unflushed(self, ledger_id: LedgerId) -> None:
        """Drop the ledger's records and locations; in compat mode the skip lists keep theirs."""
        if self.options.compat is None:
            super().drop_unflushed(ledger_id)
        self.interleaved.drop_unflushed(ledger_id)

    def after_delete(self, ledger_id: LedgerId) -> None:
        """Inherited."""
        self.interleaved.after_delete(ledger_id)

    def close(self) -> None:
        """Inherited."""
        self.interleaved.close()

    def write_snapshot(self) -> None:
        """Append the snapshot's records to the entry log in key order, and put their locations into
        the interleaved index, which is written when `pending_locations` of them wait. A log that
        grows past its size limit is not rolled here: `after_full_cache` and `checkpoint` do that
        at the end of a flush, as BookKeeper does."""
        with self.lock:
            for ledger_id, logged in self.log_snapshot(roll=False).items():
                self.interleaved.put_locations(ledger_id, logged.entries, logged.locations)
                self.note_changed(ledger_id)
            if self.interleaved.unflushed.count >= self.options.pending_locations:
                self.interleaved.write_index()

    def after_full_cache(self) -> None:
        """Roll logs that grew past the size limit meanwhile; a plain flush does not."""
        self.logger.roll_if_over_limit()

    def write_out(self) -> None:
        """Empty the skip lists, then sync logs and index."""
        self.drain()
        self.interleaved.write_out()

    def checkpoint(self) -> None:
        """Flush, and start another entry log if the skip lists held any record. With one log per
        ledger (`EntryLogManagerForEntryLogPerLedger`) logs roll by size only."""
        self.check_writable()
        if self.drain() and not self.options.entry_log_per_ledger:
            self.logger.roll()
        self.flush()
