"""The write path of db storage: two write caches, locations in RocksDB.

The log is synced before the index is told. Source: `SingleDirectoryDbLedgerStorage`.
"""

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
        self._forget_all(names)
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
                self.touch(name)
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
                self.touch(name)

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
