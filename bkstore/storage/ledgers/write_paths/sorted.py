"""The write path of sorted storage (`SortedLedgerStorage`, `EntryMemTable`): a skip list in front
of the interleaved path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource
from bkstore.index.layered import LayeredSource
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.cached import CachedPath
from bkstore.storage.ledgers.write_paths.interleaved import InterleavedPath
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex


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
        """The entries of the skip lists, and those whose locations are in memory."""
        return LayeredSource(LayeredSource(self.active, self.snapshot), self.below.unflushed)

    def location(self, name: LedgerId, entry: int) -> int | None:
        """Inherited."""
        return self.below.location(name, entry)

    def locations(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, Int64Array]:
        """Inherited."""
        return self.below.locations(name, first, last)

    def locations_of(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Inherited."""
        return self.below.locations_of(name, entries)

    def put_locations(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Inherited."""
        self.below.put_locations(name, entries, locations)

    @property
    def source(self) -> EntrySource:
        """All entries; in compat mode without the one that a real listing misses."""
        return LayeredSource(LayeredSource(self.active, self.snapshot), self.below.source)

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record; in compat mode one in a log precedes one in a skip list."""
        if self._compat is None:
            if self.active.count or self.snapshot.count:
                cached_record = self.cached(name, entry)
                if cached_record is not None:
                    return cached_record
            return self.below.read(name, entry)
        record = self.read_logged(name, entry)
        return self.cached(name, entry) if record is None else record

    def knows(self, name: LedgerId) -> bool:
        """Return whether the ledger is known; in compat mode also if a cache has its records."""
        return (
            name in self._seen_ledgers
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
        """Inherited."""
        self.below.gone(name)

    def close(self) -> None:
        """Inherited."""
        self.below.close()

    def write_snapshot(self) -> None:
        """Append the records in key order; note their locations. Only the hard limit rolls logs."""
        with self.lock:
            self.place(roll=False)
            for ledger_id, logged in self._logged.items():
                self.below.put_locations(ledger_id, *logged)
                self.touch(ledger_id)
            if self.below.unflushed.count >= self.options.pending_locations:
                self.below.write_index()

    def after_full_cache(self) -> None:
        """Roll logs that grew past the size limit meanwhile; a plain flush does not."""
        self.logger.roll_if_over_limit()

    def write_out(self) -> None:
        """Empty the skip lists, then sync logs and index."""
        self.drain()
        self.below.write_out()

    def checkpoint(self) -> None:
        """Flush, and start another entry log if the skip lists held any record. With one log per
        ledger (`EntryLogManagerForEntryLogPerLedger`) logs roll by size only."""
        self.check_writable()
        if self.drain() and not self.options.entry_log_per_ledger:
            self.logger.roll()
        self.flush()
