"""The write path of db storage (`SingleDirectoryDbLedgerStorage`): two write caches, locations in
RocksDB; the log is synced before the index is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array, LedgerId
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.cached import CachedPath
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.rocks import RocksIndex


class DbPath(CachedPath):
    """Two write caches that take turns; the last of equal entries stays; log before index."""

    rule = "last"

    def __init__(
        self, index: RocksIndex, logger: EntryLogger, options: StorageOptions, cache: int
    ) -> None:
        super().__init__(index, logger, options, cache)
        self._rocks = index
        self._reader = logger.reader
        self._delayed_deletions: set[LedgerId] = set()

    def read(self, name: LedgerId, entry: int) -> bytes | None:
        """Return one record, bypassing the write buffer, as the index has only flushed records. If
        that fails, compaction may have moved the record: `read_logged` retries."""
        if self.active.count or self.snapshot.count:
            record = self.cached(name, entry)
            if record is not None:
                return record
        location = self._rocks.get(name, entry)
        if location is None:
            return None
        try:
            return self._reader.read(location, name, entry)
        except CorruptionError:
            return self.read_logged(name, entry)

    def run_locations(self, name: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of consecutive entries, by a scan that passes over the keys."""
        return self._rocks.run(name, start, count)

    def delete(self, names: Sequence[LedgerId]) -> None:
        """Delete ledgers; in compat mode their locations stay until the next flush."""
        if self.options.compat is None:
            return super().delete(names)
        self._forget_all(names)
        self._delayed_deletions.update(names)
        return None

    def clean_up(self) -> None:
        """Delete postponed ledgers with entries added since, as upstream; keep newer state rows."""
        with self.lock:
            while self._delayed_deletions:
                ledger_id = self._delayed_deletions.pop()
                new_state = (
                    None if self.states.is_gone(ledger_id) else self.states.written(ledger_id)
                )
                self.index.delete(ledger_id)
                self.touch(ledger_id)
                self.states.deleted_from_index(ledger_id)
                if new_state is not None:
                    self.index.set_state(ledger_id, new_state)

    def after_full_cache(self) -> None:
        """Clean up, as after any flush."""
        self.clean_up()

    def write_snapshot(self) -> None:
        """Append the records in key order, sync the log, then put the locations."""
        with self.lock:
            self.place()
        self.logger.flush()
        with self.lock:
            if self.states.dirty:  # a crash must not leave entries of an unknown ledger
                self.states.flush()
                self.index.flush()
            for ledger_id, logged in self._logged.items():  # deletions removed theirs meanwhile
                self.index.put_many(ledger_id, *logged)
                self.touch(ledger_id)

    def write_out(self) -> None:
        """Empty the caches, then sync locations and ledger rows. In compat mode, as upstream, empty
        caches leave states unflushed, which are lost at a reopen."""
        had_records = self.drain()
        self.clean_up()
        with self.lock:
            if had_records or self.options.compat is None:
                self.states.flush()
            self.index.flush()

    def checkpoint(self) -> None:
        """Flush."""
        self.flush()
