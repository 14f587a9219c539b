"""A whole database as arrays: its manifest says which table files and logs there are, and their
rows are merged. Nothing is written, and RocksDB is not needed."""

from __future__ import annotations

import time
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from bkstore import forks
from bkstore.errors import BkstoreError, CorruptionError, SystemRefused, UnsupportedLayout
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.formats.rocksdb.table.range_deletes import RangeDelete
from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.index.rocks.files.database_directory import (
    find_manifest,
    in_use_error,
    list_changing_files,
)
from bkstore.index.rocks.files.log_file import FramedLogReader
from bkstore.index.rocks.files.manifest_file import (
    Manifest,
    check_logs,
    check_tables,
    open_logs,
    read_manifest,
)
from bkstore.index.rocks.tables.any_rows import read_versions
from bkstore.index.rocks.tables.block_cache import BlockCache
from bkstore.index.rocks.tables.block_rows import BATCH_BYTES, TableRows
from bkstore.index.rocks.tables.damage import Damage, UnknownRange, report
from bkstore.index.rocks.tables.key_lookups import KeyLookups
from bkstore.index.rocks.tables.key_order import WORD_BYTES, next_key
from bkstore.index.rocks.tables.merge import SortedRun, merge_runs
from bkstore.index.rocks.tables.range_cover import CoveredRows, RangeCover
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.index.rocks.tables.unflushed_rows import UnflushedRows, read_logs

_RUNS_OF_FULL_BATCHES = 8
_MIN_BATCH_BYTES = 1 << 16
_CACHED_ROWS = 1 << 18  # of blocks for short reads: some 8 MiB
_MAX_LIVE_TRIES = 20
_LOG_ROWS_PER_BLOCK = 1 << 11


class DatabaseReader:
    """The live rows of the database at `path`, as of its manifest and write-ahead logs.

    Opening reads the manifest and the logs in full, and of each table file footer, properties and
    range deletes. Table files stay open, so that a writer (`live`) may remove them. `oddities` has
    what is odd but explained by a crash, as (file, offset, detail); `unreadable` the keys of table
    files that cannot be read, which only reads of such keys report.

    Raises `CorruptionError` for a damaged manifest or log and for missing files, and
    `UnsupportedLayout` for what is not read here, by name; with `live`, `DirectoryInUse` if the
    database changes too fast. With `is_lenient`, a table file with something that is not read here
    is `unreadable` instead. Memory: the rows of the logs, and the indexes of the table files.
    Threads: may be shared. Fork: closed in the child. Close it.
    """

    def __init__(self, path: Path, *, live: bool = False, is_lenient: bool = False) -> None:
        """Open the files of the database; `live`: while a writer may change them. If `is_lenient`,
        a table file of an unsupported kind is taken for damage, and not raised."""
        self.path = path
        self._is_lenient = is_lenient
        self._cache: BlockCache[VersionedRows] = BlockCache(_CACHED_ROWS)
        self._files = ExitStack()
        self._cleanup = weakref.finalize(self, self._files.close)
        forks.register(self)
        try:
            with convert_read_errors(path):
                self._open_live() if live else self._open(live=False)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._cleanup()

    def _forked(self) -> None:
        self._cleanup()

    # -- opening

    def _open_live(self) -> None:
        """Open while a writer goes on; try again if it removed a file meanwhile. An error may come
        from files that change while they are read. It is damage if the same one comes twice and
        the files are the same before both tries; otherwise the last one is raised at the end."""
        failures: list[tuple[str, object]] = []  # the last two: text, and the files before the try
        latest_error: Exception | None = None
        for attempt in range(_MAX_LIVE_TRIES):
            time.sleep(0.002 * attempt)
            files = list_changing_files(self.path) if self.path.is_dir() else []
            try:
                return self._open(live=True)
            except (SystemRefused, UnsupportedLayout):
                raise
            except (BkstoreError, FileNotFoundError) as error:
                self._files.close()
                latest_error = error
                failures = [*failures[-1:], (str(error), files)]
                is_again = len(failures) == 2 and failures[0] == failures[1]
                if is_again and isinstance(error, CorruptionError):
                    raise
        if isinstance(latest_error, CorruptionError):
            raise latest_error
        raise in_use_error(self.path, f"changes too fast to be read: {latest_error}")

    def _open(self, live: bool) -> None:
        """Read the manifest and the write-ahead logs, and open the table files that it lists."""
        self.oddities: list[tuple[Path, int | None, str]] = []
        self.unreadable: list[UnknownRange] = []
        find_manifest(self.path)  # raises if there is no database
        self._files_before = list_changing_files(self.path)
        with ExitStack() as log_files:
            # Open the logs first: rows that a writer flushes meanwhile are in a log that is open.
            logs = open_logs(self.path, log_files)
            self.manifest = self._read_manifest(live)
            needed = [log for n, log in logs.items() if n >= self.manifest.version.log_number]
            if not live:  # otherwise some are just being written
                self._check_tables()
            self._open_tables()
            self._check_logs(needed, live)
            self._logs: UnflushedRows = read_logs(needed)
        # Range deletes of logs and tables together tell which rows are deleted.
        deletes = list(self._logs.range_deletes)
        for table in self.tables():
            deletes += _deletes_of(table)
        self._cover = RangeCover(deletes)
        self._lookups = KeyLookups(self._runs)
        self._covered: dict[int, CoveredRows] = {}

    def _read_manifest(self, live: bool) -> Manifest:
        """Return the manifest. Raises `UnsupportedLayout` for features that are not supported; a
        record that the file ends inside, which a crash explains, is an oddity, but not if `live`:
        it is being written, and the files before it are still those of the database."""
        manifest = read_manifest(find_manifest(self.path))
        if manifest.unsupported is not None:
            raise UnsupportedLayout(f"{manifest.path}: {manifest.unsupported}: not supported")
        if manifest.torn_offset is not None and not live:
            detail = "manifest ends inside a record"
            self.oddities.append((manifest.path, manifest.torn_offset, detail))
        return manifest

    def _check_tables(self) -> None:
        """Raise if a table file is missing, note what a crash explains."""
        for table_path in check_tables(self.manifest, self.path):
            detail = "table file that no manifest lists: left by a crash; RocksDB deletes it"
            self.oddities.append((table_path, None, detail))

    def _check_logs(self, logs: list[FramedLogReader], live: bool) -> None:
        """Raise `CorruptionError` if a write-ahead log is missing or damaged. A last record that is
        incomplete, which a crash explains, is an oddity, but not if `live`: it is being written."""
        torn_tails = check_logs(self.manifest, logs)
        self.oddities += [] if live else torn_tails
        if self.manifest.unsupported is not None:
            raise UnsupportedLayout(f"{self.path}: {self.manifest.unsupported}: not supported")

    def _open_tables(self) -> None:
        """Open the table files, as runs that are sorted: files of level 0 overlap, each is a run of
        its own."""
        self._runs: list[list[TableReader]] = []
        for level, tables in self.manifest.version.levels().items():
            readers = [reader for table in tables if (reader := self._open_table(table))]
            self._runs += [[reader] for reader in readers] if level == 0 else [readers]

    def _open_table(self, table: TableFileMetadata) -> TableReader | None:
        """Open a table file. If it is damaged, return None and append the range of its keys, which
        the manifest states, to `unreadable`."""
        path = self.path / table.file_name
        try:
            return self._files.enter_context(TableReader(path, listed=table))
        except CorruptionError as error:
            offset, reason = error.offset, error.reason
        except UnsupportedLayout as error:
            if not self._is_lenient:
                raise
            offset, reason = None, str(error).removeprefix(f"{path}: ")
        keys = table.smallest_key, table.end_key
        unknown = UnknownRange(str(path), offset, reason, *keys, table.largest_sequence)
        self.unreadable.append(unknown)
        return None

    # -- what there is

    def is_current(self) -> bool:
        """Return whether nothing was written since the database was opened."""
        return list_changing_files(self.path) == self._files_before

    def tables(self) -> Iterator[TableReader]:
        """Yield the table files that can be read."""
        for run in self._runs:
            yield from run

    @property
    def run_count(self) -> int:
        """The number of sorted runs that a read of all rows merges: levels, files of level 0, and
        the write-ahead logs together."""
        return len(self._runs) + bool(self._logs.row_count)

    def unflushed_counts(self) -> tuple[int, int]:
        """Return how many rows are only in write-ahead logs, and how many of them delete a key."""
        return self._logs.row_count, self._logs.deletion_count

    def end_keys(self, words: int | None = None) -> list[bytes]:
        """Return the lowest and the highest key of all files, none without rows; of logs, only
        keys of 8 * `words` bytes, if it is not None. Rows with these keys may have been deleted."""
        tables = self.manifest.version.tables.values()
        keys = [key for table in tables for key in (table.smallest_key, table.largest_key)]
        keys += self._logs.end_keys(words)
        return [min(keys), max(keys)] if keys else []

    # -- reading

    def rows(
        self,
        words: int,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        damage: Damage = None,
        first_batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[VersionedRows]:
        """Yield the live rows (neither deleted nor replaced) with keys from `start` to before
        `stop` (None: no limit), in batches, in the order of keys. Keys have `words` words of 8
        bytes, values 8 bytes; the first batches come from `first_batch_bytes` of blocks. Damage
        raises `CorruptionError` with the range of keys that it makes unknown. With a list `damage`,
        the range is appended to it and skipped, and rows that an unknown row may have replaced or
        deleted are left out. Memory: a batch of each level, and of each file of level 0."""
        for unknown in self.unreadable:
            if unknown.overlaps(start, stop):
                report(unknown, damage)
        # A run yields rows in order: those of a level, of a file of level 0, or of the logs.
        runs: list[SortedRun] = [
            self._run_rows(run, words, start, stop, damage, first_batch_bytes)
            for run in self._runs
            if any(_overlaps(table, start, stop) for table in run)
        ]
        if self._logs.row_count:
            runs.append(self._logs.rows(words, start, stop, damage))
        # What range deletes cover is computed once for each width of keys.
        if words not in self._covered:
            self._covered[words] = CoveredRows(self._cover, words)
        return merge_runs(runs, self._covered[words], words, damage)

    def _run_rows(
        self,
        tables: list[TableReader],
        words: int,
        start: bytes | None,
        stop: bytes | None,
        damage: Damage,
        first_batch_bytes: int,
    ) -> SortedRun:
        """Yield the rows of files whose keys do not overlap, in order, one file after the other.
        Parameters are as in `rows`."""
        batch_bytes = BATCH_BYTES
        if len(self._runs) > _RUNS_OF_FULL_BATCHES:  # each holds a batch: smaller ones bound memory
            share = BATCH_BYTES * _RUNS_OF_FULL_BATCHES // len(self._runs)
            batch_bytes = max(share, _MIN_BATCH_BYTES)
        for table in tables:
            if not _overlaps(table, start, stop):
                continue
            rows_read = 0
            last_key, end_key = table.key_bounds  # `last_key`: of the rows read so far
            try:
                for rows in TableRows(
                    table,
                    words,
                    start,
                    stop,
                    damage=damage,
                    batch_bytes=batch_bytes,
                    first_batch_bytes=first_batch_bytes,
                    cache=self._cache if first_batch_bytes < batch_bytes else None,
                ):
                    if len(rows):
                        rows_read += len(rows)
                        last_key = rows.key_at(-1)
                    yield rows
            except (CorruptionError, UnsupportedLayout) as error:
                if damage is None:
                    raise
                # All keys after the last row that was read are unknown.
                begin = last_key + b"\0" if rows_read else last_key
                failure = _as_damage(error, table)
                damage.append(table.unknown(failure, failure.offset, begin, end_key))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of one key, a location of 8 bytes, or None if there is none. Reads one
        block of each level that may have the key. Raises `CorruptionError` if the key's row is
        unknown. Some 30 us a level, and 100 us for a block that is not in the cache."""
        with suppress(CorruptionError, UnsupportedLayout):
            return self._find_value(key)
        # The look-up met damage or something that it does not read. Read the range that has this
        # key alone, a block at a time, as rows: that passes over what does not matter, or raises.
        for rows in self.rows(len(key) // WORD_BYTES, key, next_key(key), first_batch_bytes=1):
            if len(rows):
                return int(rows.values[0]).to_bytes(WORD_BYTES, "big", signed=True)
        return None

    def _find_value(self, key: bytes) -> bytes | None:
        """Return the value of the live row of a key, None if it has none. Raises as `KeyLookups`,
        also if a file that may have the key cannot be read."""
        for unknown in self.unreadable:
            if key in unknown:
                raise unknown.error()
        # The newest row of the key counts, unless it is a deletion or a range delete is newer.
        versions = [*self._lookups.find_versions(key), *self._logs.find_newest(key)]
        newest = max(versions, key=lambda row: row.sequence, default=None)
        if newest is None or newest.code != ValueType.VALUE:
            return None
        is_covered = newest.sequence < self._cover.newest_at(key)  # by a newer range delete
        return None if is_covered else newest.value

    def count_blocks(self, start: bytes, stop: bytes) -> int:
        """Return how many data blocks may have keys of [start, stop): an upper bound, from indexes
        alone. All rows of write-ahead logs count, as blocks of `_LOG_ROWS_PER_BLOCK` rows."""
        count = -(-self._logs.row_count // _LOG_ROWS_PER_BLOCK)  # rounded up
        for table in self.tables():
            if _overlaps(table, start, stop):
                try:
                    separators = table.index.separators
                except CorruptionError:  # `rows` reports it
                    continue
                count += bisect_left(separators, stop) - bisect_left(separators, start) + 1
        return count

    def last_key(self, words: int, start: bytes, stop: bytes) -> bytes | None:
        """Return the highest key of the live rows in [start, stop), None if there is none. Some 60
        us a level, and 100 us for a block that is not in the cache. If the highest key is deleted,
        the last block of each file in the range is read, and four times as many as before as long
        as all rows that were read are deleted."""
        with suppress(CorruptionError, UnsupportedLayout):
            key = self._last_stored_key(words, start, stop)
            if key is None or self._find_value(key) is not None:
                return key
        block_count = 1
        while True:
            # From the key `first` on, no file has more than `block_count` blocks.
            first = max(
                [start, *(self._before(table, stop, block_count) for table in self.tables())]
            )
            last: bytes | None = None
            for rows in self.rows(words, first, stop, first_batch_bytes=_MIN_BATCH_BYTES):
                last = rows.key_at(-1)
            if last is not None or first == start:
                return last
            block_count *= 4

    def _last_stored_key(self, words: int, start: bytes, stop: bytes) -> bytes | None:
        """Return the highest key of all rows in [start, stop), live or deleted, None if there is
        none. Raises as `KeyLookups`, also if a file that may have such keys cannot be read."""
        for unknown in self.unreadable:
            if unknown.overlaps(start, stop):
                raise unknown.error()
        keys = [self._lookups.last_key_before(stop)]
        keys += [rows.key_at(-1) for rows in self._logs.rows(words, start, stop) if len(rows)]
        key = max((key for key in keys if key is not None), default=b"")
        if key < start:
            return None
        if len(key) != WORD_BYTES * words:
            raise CorruptionError(self.path, None, f"not a bookie's key: {key[:40].hex()}")
        return key

    def _before(self, table: TableReader, stop: bytes, block_count: int) -> bytes:
        """Return a key that has `block_count` blocks of the file between it and `stop`; b"" if the
        file has fewer."""
        if table.key_bounds[0] >= stop:
            return b""
        try:
            separators = table.index.separators
        except CorruptionError:  # `rows` reports it
            return b""
        block = bisect_left(separators, stop) - block_count
        return separators[block] if block >= 0 else b""

    def items(self, damage: Damage = None) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of all live rows, of any width, in the order of keys: for small
        databases such as `ledgers`. Some 5 us a row. Memory: all of it. Damage as in `rows`."""
        newest: dict[bytes, tuple[int, int, bytes]] = {}  # by key: sequence number, type, value
        unknown: list[UnknownRange] = []
        for key, sequence, code, value in self._all_versions(unknown):
            if key not in newest or newest[key][0] < sequence:
                newest[key] = sequence, code, value
        for unknown_range in unknown:
            report(unknown_range, damage)

        def may_have_changed(key: bytes, sequence: int) -> bool:
            """Return whether an unknown row may be a newer one of this key."""
            return any(key in each and sequence <= each.newest_sequence for each in unknown)

        return [
            (key, value)
            for key, (sequence, code, value) in sorted(newest.items())
            if code == ValueType.VALUE
            and sequence >= self._cover.newest_at(key)  # no newer range delete covers it
            and not may_have_changed(key, sequence)
        ]

    def _all_versions(self, damage: list[UnknownRange]) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield (key, sequence number, type, value) of all rows in tables and logs, in no order.
        The ranges of keys that damage makes unknown are appended to `damage`."""
        damage += self.unreadable
        yield from self._logs.versions()
        for table in self.tables():
            try:
                yield from read_versions(table, damage)
            except (CorruptionError, UnsupportedLayout) as error:
                failure = _as_damage(error, table)
                damage.append(table.unknown(failure, failure.offset, *table.key_bounds))


def _as_damage(error: CorruptionError | UnsupportedLayout, table: TableReader) -> CorruptionError:
    """Return an error of reading a file as damage: something that is not read here hides rows, too,
    if it is met after opening, when RocksDB cannot replace the arrays any more."""
    if isinstance(error, CorruptionError):
        return error
    return CorruptionError(table.path, None, str(error).removeprefix(f"{table.path}: "))


def _overlaps(table: TableReader, start: bytes | None, stop: bytes | None) -> bool:
    """Return whether a file may have keys of [start, stop)."""
    first, end = table.key_bounds
    is_below = start is not None and end is not None and end <= start
    return not is_below and (stop is None or first < stop)


def _deletes_of(table: TableReader) -> list[RangeDelete]:
    """Return a file's range deletes, each cut to the file's range of keys. Beyond it a delete does
    not count: a compaction may have set the sequence numbers of rows in other files to 0, so they
    would look older than the delete."""
    first, end = table.key_bounds
    return [
        RangeDelete(max(start, first), stop if end is None else min(stop, end), sequence)
        for start, stop, sequence in table.range_deletes
    ]
