"""Databases read as arrays from their files, without RocksDB: what readers open. RocksDB is opened
only for look-ups of single keys, at the first one, for it is faster there; and only while the files
are still those that the arrays are of."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from bkstore import forks
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.ids import Int64Array, count_consecutive
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.files.database_directory import check_not_in_use
from bkstore.index.rocks.keys import name_ledgers
from bkstore.index.rocks.readable_database import (
    DatabaseSizes,
    KeyColumns,
    KeysAndValues,
    LedgersDatabase,
    LocationsDatabase,
)
from bkstore.index.rocks.tables.damage import Damage, UnknownRange, report
from bkstore.index.rocks.tables.database_reader import DatabaseReader
from bkstore.index.rocks.tables.key_order import next_key

_WORD_BYTES = 8
_FIRST_BATCH_BYTES = 1 << 16
"""Contents of the first blocks of a short read: one block of a bookie's."""

_SCANNED_PER_KEY = 10
_SCANNED_PER_KEY_OF_ARRAYS = 1000
_SCANNED_PER_OPENING = 1 << 16  # rows that are read while RocksDB opens a database

_SHORT_BLOCKS = 32
"""The data blocks up to which a range is read at once: some 100,000 rows."""

_READ_ON_BLOCKS = 8
"""The blocks of each run up to which reading on is faster than a new read behind them."""

_INDEX_BYTES, _FILTER_BYTES = "rocksdb.index.size", "rocksdb.filter.size"


class _TableDatabase:
    """A read-only database, as `ReadableDatabase`; `live` while a writer uses it. A snapshot of
    when it was opened. Threads: may be shared. Fork: closed in the child."""

    def __init__(self, path: Path, live: bool = False, is_lenient: bool = False) -> None:
        """Open the files; `is_lenient` takes a table file of an unsupported kind for damage."""
        if not live:
            check_not_in_use(path)
        self.path = path
        self._live = live
        self._is_closed = False
        self._files = DatabaseReader(path, live=live, is_lenient=is_lenient)
        self.oddities = self._files.oddities
        forks.register(self)

    @property
    def _reader(self) -> DatabaseReader:
        if self._is_closed:
            raise forks.closed_error(f"{self.path}: the database")
        return self._files

    def end_rows(self, words: int | None) -> list[tuple[bytes, bytes | None]]:
        """Inherited."""
        return [(key, None) for key in self._reader.end_keys(words)]

    def sizes(self) -> DatabaseSizes:
        """Return the sizes of the database, from the properties of its table files."""
        tables = [table.properties for table in self._reader.tables()]
        deletions = sum(table.deletions for table in tables)
        entries = sum(table.entries for table in tables)  # rows of files, deletions among them
        unflushed, unflushed_deletions = self._reader.unflushed_counts()
        # RocksDB's estimate of live rows: a deletion is no row itself, and takes one away.
        live_in_tables = max(entries - 2 * deletions, 0)
        live_in_all = max(live_in_tables + unflushed - 2 * unflushed_deletions, 0)
        return DatabaseSizes(
            self.path,
            table_bytes=sum(table.size for table in self._reader.manifest.version.tables.values()),
            table_entries=entries,
            tombstones=deletions,
            range_tombstones=sum(table.range_deletions for table in tables),
            estimated_rows=live_in_all,
            unflushed_entries=unflushed,
            row_bytes=sum(table.key_bytes + table.value_bytes for table in tables),
            index_block_bytes=sum(table.number(_INDEX_BYTES) for table in tables),
            filter_block_bytes=sum(table.number(_FILTER_BYTES) for table in tables),
        )

    def close(self) -> None:
        """Inherited."""
        self._is_closed = True
        self._files.close()

    def _forked(self) -> None:
        self._is_closed = True


class TableLedgers(_TableDatabase):
    """A `ledgers` database, as `LedgersDatabase`: all rows are read at the first use, some 5 us
    each, and stay in memory."""

    def __init__(self, path: Path, live: bool = False, is_lenient: bool = False) -> None:
        super().__init__(path, live, is_lenient)
        self._rows: dict[bytes, bytes] | None = None
        self._unknown: list[UnknownRange] = []

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent. Raises `CorruptionError` if its row is unknown."""
        value = self._all_rows().get(key)
        if value is None:  # absent, unless damage makes its row unknown
            for unknown in self._unknown:
                if key in unknown:
                    raise unknown.error()
        return value

    def read_all(self, damage: Damage = None) -> list[tuple[bytes, bytes]]:
        """Inherited."""
        rows = self._all_rows()
        for unknown in self._unknown:
            report(unknown, damage)
        return list(rows.items())

    def _all_rows(self) -> dict[bytes, bytes]:
        """Return all rows, read by the first call, except those in the ranges of keys that damage
        makes unknown (`_unknown`)."""
        reader = self._reader
        if self._rows is None:
            unknown: list[UnknownRange] = []
            rows = dict(reader.items(unknown))
            self._unknown = [name_ledgers(each, self.path) for each in unknown]
            self._rows = rows
        return self._rows


class TableLocations(_TableDatabase):
    """A `locations` database, as `LocationsDatabase`: some 60 ns a row. Look-ups are by RocksDB, 2
    us each, as long as it has the same rows: not of a database that is live, that a writer has
    changed since, or that has an unreadable table file. There they take some 30 us a level."""

    def __init__(self, path: Path, live: bool = False, is_lenient: bool = False) -> None:
        super().__init__(path, live, is_lenient)
        self._opening = threading.Lock()
        self._rocksdb: Database | None = None
        self._by_arrays = live or bool(self._files.unreadable)

    # -- look-ups of keys

    def max_scanned(self, key_count: int) -> int:
        """Inherited."""
        if self._by_arrays:
            return _SCANNED_PER_KEY_OF_ARRAYS * key_count
        return max(_SCANNED_PER_KEY * key_count, 0 if self._rocksdb else _SCANNED_PER_OPENING)

    def get(self, key: bytes) -> bytes | None:
        """Inherited."""
        database = self._rocksdb or self._open_rocksdb()
        return self._reader.get(key) if database is None else database.get(key)

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Inherited."""
        database = self._rocksdb or self._open_rocksdb()
        if database is None:
            return [self._reader.get(key) for key in keys]
        return database.get_list(keys)

    def _open_rocksdb(self) -> Database | None:
        """Return the same database opened by RocksDB, through a scratch directory of links, for
        fast look-ups. None if keys must be looked up in the arrays instead: RocksDB has other rows,
        as a writer has changed them, or it refuses all rows because some are damaged."""
        with self._opening:
            reader = self._reader  # raises if closed
            if self._rocksdb is None and not self._by_arrays:
                self._rocksdb = _open_alike(self.path, reader)
                self._by_arrays = self._rocksdb is None
            return self._rocksdb

    def close(self) -> None:
        """Inherited."""
        super().close()
        with self._opening:
            if self._rocksdb is not None:
                self._rocksdb.close()

    def _forked(self) -> None:
        super()._forked()
        self._opening = threading.Lock()
        self._rocksdb = None

    # -- ranges

    def keys(self, start: bytes, stop: bytes, words: int) -> KeyColumns:
        """Inherited."""
        blocks = list(self.key_blocks(start, stop, words))
        if len(blocks) == 1:
            return blocks[0]
        return np.concatenate([np.empty((words, 0), np.int64), *blocks], axis=1)

    def may_be_long(self, start: bytes, stop: bytes) -> bool:
        """Inherited."""
        return self._reader.count_blocks(start, stop) > _SHORT_BLOCKS

    def key_blocks(self, start: bytes, stop: bytes, words: int) -> Iterator[KeyColumns]:
        """Inherited."""
        for rows in self._rows(start, stop, words, _FIRST_BATCH_BYTES):
            yield rows.keys.view(np.int64)

    def items(
        self,
        start: bytes,
        stop: bytes | None,
        words: int,
        batch: int,
        damage: Damage = None,
    ) -> Iterator[KeysAndValues]:
        """Yield (keys, values) of [start, stop) in arrays of at most `batch` rows. Ranges of keys
        that damage makes unknown are appended to `damage`, or raised if that is None."""
        for rows in self._rows(start, stop, words, _FIRST_BATCH_BYTES, damage):
            for first in range(0, len(rows), batch):
                _ = self._reader  # raises if closed meanwhile, or by a fork
                part = slice(first, first + batch)
                # The words of keys are unsigned in the arrays, signed in this contract.
                yield rows.keys[:, part].view(np.int64), rows.values[part]

    def consecutive_values(self, start: bytes, stop: bytes, words: int) -> Int64Array:
        """Return the values of the keys `start`, `start` + 1, ... up to the first absent one."""
        # The last word of a key is the entry id; the ids must ascend by one, from block to block.
        next_entry = int.from_bytes(start[-_WORD_BYTES:], "big")
        parts: list[Int64Array] = []
        for keys, values in self.items(start, stop, words, batch=1 << 62):
            count = count_consecutive(keys[-1], next_entry)
            parts.append(values[:count])
            next_entry += count
            if count < values.size:
                break
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def last_key(self, start: bytes, stop: bytes, words: int) -> bytes | None:
        """Inherited."""
        return self._reader.last_key(words, start, stop)

    def estimate_rows(self, prefixes: Sequence[bytes]) -> Int64Array:
        """Inherited. From the indexes of table files; rows of write-ahead logs do not count."""
        rows = np.zeros(len(prefixes))
        for table in self._reader.tables():
            with suppress(CorruptionError, UnsupportedLayout):  # reading the rows reports it
                rows += table.estimate_rows(prefixes)
        return np.rint(rows).astype(np.int64)

    def key_prefixes(self, words: int, damage: Damage = None) -> list[bytes]:
        """Return the distinct prefixes of keys, all words but the last, in order. Ranges of keys
        that damage makes unknown are appended to `damage`, or raised if that is None."""
        prefixes: list[bytes] = []
        unknown: dict[UnknownRange, None] = {}  # several reads may report a range: each once
        start: bytes | None = b""  # None: all keys were read
        while start is not None:
            # Batches are read one after the other. After a batch of a single prefix with many more
            # blocks, a new read begins behind all its keys.
            unknown_here: Damage = None if damage is None else []
            for rows in self._rows(start, None, words, _FIRST_BATCH_BYTES, unknown_here):
                # Keys are uint64[words, n]: the prefix is in all lines but the last.
                differs = (rows.keys[:-1, 1:] != rows.keys[:-1, :-1]).any(axis=0)
                firsts = rows.keys[:-1, np.flatnonzero(np.concatenate(([True], differs)))]
                of_batch = [prefix.tobytes() for prefix in firsts.T.astype(">u8")]
                prefixes += of_batch[1:] if prefixes and prefixes[-1] == of_batch[0] else of_batch
                if len(of_batch) == 1 and self._is_long(of_batch[0], rows.key_at(-1)):
                    start = next_key(of_batch[0])
                    break
            else:
                start = None
            unknown.update(dict.fromkeys(unknown_here or ()))
        if damage is not None:
            damage += unknown
        return prefixes

    def _is_long(self, prefix: bytes, last_key: bytes) -> bool:
        """Return whether the keys with a prefix behind `last_key` have so many blocks that a new
        read behind them, of a small batch from each run, costs less."""
        stop = next_key(prefix)
        if stop is None:
            return True  # there is nothing behind them
        block_count = self._reader.count_blocks(last_key, stop)
        return block_count > _READ_ON_BLOCKS * self._reader.run_count

    def _rows(
        self,
        start: bytes,
        stop: bytes | None,
        words: int,
        first_batch_bytes: int,
        damage: Damage = None,
    ) -> Iterator[VersionedRows]:
        """Yield the live rows of [start, stop) in batches, the first ones of blocks with
        `first_batch_bytes` of contents. Keys have `words` words of 64 bits. Ranges of keys that
        damage makes unknown are appended to `damage`; with None they raise. Raises
        `IllegalOperation` if the database is closed between two batches."""
        rows = self._reader.rows(
            words, start, stop, damage=damage, first_batch_bytes=first_batch_bytes
        )
        for batch in rows:
            yield batch
            _ = self._reader  # raises if closed meanwhile, or by a fork


def open_locations(path: Path, live: bool = False) -> LocationsDatabase:
    """Open a `locations` database to read; `live`: while a writer may change it. It is read as
    arrays. If it has a feature that this code does not support, RocksDB opens it, and an oddity
    names the feature. If RocksDB refuses it as damaged, it is read as arrays all the same, without
    the table files that are not supported."""
    try:
        return TableLocations(path, live)
    except UnsupportedLayout as refusal:
        try:
            return _open_by_rocksdb(path, live, refusal)
        except CorruptionError as damage:
            with _replaced(damage):
                return TableLocations(path, live, is_lenient=True)


def open_ledgers(path: Path, live: bool = False) -> LedgersDatabase:
    """Open a `ledgers` database, which has few rows with values of any width, to read; by arrays or
    by RocksDB as in `open_locations`."""
    try:
        return TableLedgers(path, live)
    except UnsupportedLayout as refusal:
        try:
            return _open_by_rocksdb(path, live, refusal)
        except CorruptionError as damage:
            with _replaced(damage):
                return TableLedgers(path, live, is_lenient=True)


@contextmanager
def _replaced(damage: CorruptionError) -> Iterator[None]:
    """Raise `damage`, which RocksDB reported, in place of an `UnsupportedLayout` of this code."""
    try:
        yield
    except UnsupportedLayout:
        raise damage from None


def _open_alike(path: Path, reader: DatabaseReader) -> Database | None:
    """Return the database at `path` opened by RocksDB if its rows are those of `reader`. Return
    None if a writer has changed the files since `reader` opened them, or if RocksDB refuses."""
    try:
        database = Database(path)
    except (BkstoreError, FileNotFoundError):  # in use by now, or damaged somewhere
        return None
    if reader.is_current():
        return database
    database.close()
    return None


def _open_by_rocksdb(path: Path, live: bool, refusal: UnsupportedLayout) -> Database:
    if not path.is_dir():
        raise refusal
    database = Database(path, live=live)
    reason = str(refusal).removeprefix(f"{path}").lstrip("/: ")
    database.oddities.append((path, None, f"is read by RocksDB, not as arrays: {reason}"))
    return database
