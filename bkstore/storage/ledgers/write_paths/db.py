"""The write path of db storage (`SingleDirectoryDbLedgerStorage`): two write caches, locations in
RocksDB; the log is synced before the index is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import IndexBatch
from bkstore.storage.entry_log.writer import EntryLogger
from bkstore.storage.ledgers.write_paths.api import Move
from bkstore.storage.ledgers.write_paths.cached import CachedWritePath
from bkstore.storage.options import StorageOptions

if TYPE_CHECKING:
    from bkstore.index.rocks import RocksIndex


_LedgerRows = tuple[LedgerId, Int64Array, Int64Array]

_INGESTED_SNAPSHOT_ROWS = 1 << 18
_INGESTED_MOVES = 1 << 15
"""From so many rows on, a table file is ingested: a fifth of the time of puts. It becomes a file of
level 0, of which four start a compaction; checkpoints are more frequent than garbage collections,
so that theirs must be larger."""

_MOVES_AT_ONCE = 1 << 17
"""Rows that are changed under the lock at a time."""


class DbWritePath(CachedWritePath):
    """Two write caches that take turns; the last of equal entries stays; log before index."""

    duplicates = "last"

    def __init__(
        self, index: RocksIndex, logger: EntryLogger, options: StorageOptions, cache_bytes: int
    ) -> None:
        super().__init__(index, logger, options, cache_bytes)
        self._rocks = index
        self._reader = logger.reader
        self._delayed_deletions: set[LedgerId] = set()

    def read(self, ledger_id: LedgerId, entry_id: int) -> bytes | None:
        """Return one record, None if the entry is absent. Reads past the log's write buffer, as the
        index has only flushed records. If that fails, compaction may have moved the record:
        `read_logged` looks it up again."""
        if self.active_cache.count or self.snapshot.count:
            record = self.get_cached(ledger_id, entry_id)
            if record is not None:
                return record
        location = self._rocks.get(ledger_id, entry_id)
        if location is None:
            return None
        try:
            return self._reader.read(location, ledger_id, entry_id)
        except CorruptionError:
            return self.read_logged(ledger_id, entry_id)

    def get_location_run(self, ledger_id: LedgerId, start: int, count: int) -> Int64Array:
        """Return the locations of consecutive entries, by a scan that passes over the keys."""
        return self._rocks.get_location_run(ledger_id, start, count)

    def delete(self, ledger_ids: Sequence[LedgerId]) -> None:
        """Delete ledgers; in compat mode their locations stay until the next flush."""
        if self.options.compat is None:
            return super().delete(ledger_ids)
        self._forget_all(ledger_ids)
        self._delayed_deletions.update(ledger_ids)
        return None

    def clean_up(self) -> None:
        """Delete the index rows of ledgers that were deleted earlier. If such a ledger was created
        again meanwhile, its new entries go too, as in BookKeeper, but its new state is kept."""
        with self.lock:
            while self._delayed_deletions:
                ledger_id = self._delayed_deletions.pop()
                is_deleted = self.states.is_deleted(ledger_id)
                # Deleting from the index drops a new state too: keep it, to store it again.
                new_state = None if is_deleted else self.states.read_stored(ledger_id)
                self.index.delete(ledger_id)
                self.note_changed(ledger_id)
                self.states.note_deleted_from_index(ledger_id)
                if new_state is not None:
                    self.index.set_state(ledger_id, new_state)

    def after_full_cache(self) -> None:
        """Clean up, as after any flush."""
        self.clean_up()

    def write_snapshot(self) -> None:
        """Append the records in key order, sync the log, then put the locations."""
        with self.lock:
            logged_by_ledger = self.log_snapshot()
        self.logger.flush()
        with self.lock:
            if self.states.dirty:  # a crash must not leave entries of an unknown ledger
                self.states.flush()
                self.index.flush()
            # A ledger that was deleted since `log_snapshot` is no longer in the dict.
            rows = [
                (ledger_id, logged.entries, logged.locations)
                for ledger_id, logged in logged_by_ledger.items()
            ]
            self._put_rows(rows, _INGESTED_SNAPSHOT_ROWS)
            for ledger_id in logged_by_ledger:
                self.note_changed(ledger_id)

    def relocate_many(self, moves: Sequence[Move]) -> int:
        """Change the index rows of compacted entries to their new locations; return how many
        changed. With many moves their rows are written as table files, and ingested at once."""
        moved_rows = 0
        for group in _group_moves(moves):
            with self.lock:
                rows = [(move.ledger_id, *self.find_unmoved(move)) for move in group]
                moved_rows += self._put_rows(rows, _INGESTED_MOVES)
        return moved_rows

    def _put_rows(self, rows: list[_LedgerRows], least_ingested: int) -> int:
        """Put the rows of ledgers into the index, from `least_ingested` rows on by ingesting a
        table file, which is faster for many; return the number of rows."""
        row_count = sum(entry_ids.size for _, entry_ids, _ in rows)
        if row_count >= least_ingested:
            self._rocks.bulk_load([IndexBatch.joined([IndexBatch.of_ledger(*row) for row in rows])])
            return row_count
        for ledger_id, entry_ids, locations in rows:
            if entry_ids.size:
                self.index.put_many(ledger_id, entry_ids, locations)
        return row_count

    def write_out(self) -> None:
        """Empty the caches, then sync locations and ledger states. In compat mode, which copies
        BookKeeper's behavior, states are not written if the caches were empty; a reopen loses them.
        """
        had_records = self.drain()
        self.clean_up()
        with self.lock:
            if had_records or self.options.compat is None:
                self.states.flush()
            self.index.flush()


def _group_moves(moves: Sequence[Move]) -> Iterator[list[Move]]:
    """Yield the moves in order, in groups of some `_MOVES_AT_ONCE` rows."""
    group: list[Move] = []
    row_count = 0
    for move in moves:
        group.append(move)
        row_count += move.entry_ids.size
        if row_count >= _MOVES_AT_ONCE:
            yield group
            group, row_count = [], 0
    if group:
        yield group
