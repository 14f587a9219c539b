"""A whole database as arrays: its manifest says which table files and logs there are, and their
rows are merged. Nothing is written, and RocksDB is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.formats.rocksdb.table.range_deletes import RangeDelete
from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.index.rocks.files.database_directory import find_manifest
from bkstore.index.rocks.files.manifest_file import (
    Manifest,
    check_logs,
    check_tables,
    list_needed_logs,
    read_manifest,
)
from bkstore.index.rocks.tables.any_rows import read_versions
from bkstore.index.rocks.tables.block_rows import BATCH_BYTES, TableRows
from bkstore.index.rocks.tables.damage import Damage, UnknownRange
from bkstore.index.rocks.tables.merge import SortedRun, merge_runs
from bkstore.index.rocks.tables.range_cover import RangeCover
from bkstore.index.rocks.tables.table_reader import TableReader
from bkstore.index.rocks.tables.unflushed_rows import UnflushedRows, read_logs

_RUNS_OF_FULL_BATCHES = 8
_MIN_BATCH_BYTES = 1 << 16


class DatabaseReader:
    """The live rows of the database at `path`, as of its manifest and write-ahead logs.

    Opening reads the manifest and the logs in full, and of each table file all but its data blocks.
    `oddities` has what is odd but explained by a crash, as (file, offset, detail). With `damage`,
    table files that cannot be opened are appended there, as ranges of keys, and passed over.

    Raises `CorruptionError` for damage and missing files, `UnsupportedLayout` for what is not read
    here, by name. Memory: the rows of the logs, and the indexes of the table files. Threads: may be
    shared.
    """

    def __init__(self, path: Path, *, damage: Damage = None) -> None:
        self.path = path
        self.oddities: list[tuple[Path, int | None, str]] = []
        self._damage = damage
        self.manifest = self._read_manifest()
        self._check_files()
        self._logs: UnflushedRows = read_logs(list_needed_logs(self.manifest, path).values())
        deletes = list(self._logs.range_deletes)
        self._levels: list[list[TableFileMetadata]] = []
        for level, tables in self.manifest.version.levels().items():
            readable = [table for table in tables if self._add_deletes(table, deletes)]
            # Files of level 0 overlap: each is a run of its own.
            self._levels += [[table] for table in readable] if level == 0 else [readable]
        self._cover = RangeCover(deletes)

    # -- opening

    def _read_manifest(self) -> Manifest:
        """Read the manifest; raises for features that are not supported, notes a torn end."""
        manifest = read_manifest(find_manifest(self.path))
        if manifest.unsupported is not None:
            raise UnsupportedLayout(f"{manifest.path}: {manifest.unsupported}: not supported")
        if manifest.torn_offset is not None:
            detail = "manifest ends inside a record"
            self.oddities.append((manifest.path, manifest.torn_offset, detail))
        return manifest

    def _check_files(self) -> None:
        """Raise if a table file or a log is missing or damaged, note what a crash explains."""
        for table_path in check_tables(self.manifest, self.path):
            detail = "table file that no manifest lists: left by a crash; RocksDB deletes it"
            self.oddities.append((table_path, None, detail))
        for log_path, offset in check_logs(self.manifest, self.path):
            detail = "write-ahead log ends inside a record: its last write is lost, as in a crash"
            self.oddities.append((log_path, offset, detail))
        if self.manifest.unsupported is not None:
            raise UnsupportedLayout(f"{self.path}: {self.manifest.unsupported}: not supported")

    def _open(self, table: TableFileMetadata) -> TableReader:
        """Open a table file; raises `CorruptionError` if its size is not the manifest's."""
        reader = TableReader(self.path / table.file_name, table.largest_sequence)
        if reader.file_bytes != table.size:
            reader.close()
            reason = f"has {reader.file_bytes} bytes, the manifest {table.size}"
            raise CorruptionError(reader.path, min(reader.file_bytes, table.size), reason)
        return reader

    def _add_deletes(self, table: TableFileMetadata, deletes: list[RangeDelete]) -> bool:
        """Add a file's range deletes, as far as they lie in the file's range of keys; beyond, keys
        of other files may have lost their sequence numbers. Return whether the file can be read."""
        try:
            with self._open(table) as reader:
                file_deletes = reader.range_deletes
        except CorruptionError as error:
            if self._damage is None:
                raise
            stop = _end_of(table)
            file = str(self.path / table.file_name)
            self._damage.append(
                UnknownRange(
                    file,
                    error.offset,
                    error.reason,
                    table.smallest_key,
                    stop,
                    table.largest_sequence,
                )
            )
            return False
        stop = _end_of(table)
        deletes += [
            RangeDelete(max(start, table.smallest_key), min(end, stop), sequence)
            for start, end, sequence in file_deletes
        ]
        return True

    # -- reading

    def rows(
        self, words: int, start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[VersionedRows]:
        """Yield the live rows with keys in [start, stop) (None: no limit), which are all of
        8 * `words` bytes, with values of 8, in batches in the order of keys. Damage raises
        `CorruptionError` with the keys that are unknown, or with the `damage` of opening is passed
        over: rows that it may have changed are left out. Memory: a batch of each level, and of each
        file of level 0."""
        batch_bytes = BATCH_BYTES
        if len(self._levels) > _RUNS_OF_FULL_BATCHES:
            share = BATCH_BYTES * _RUNS_OF_FULL_BATCHES // len(self._levels)
            batch_bytes = max(share, _MIN_BATCH_BYTES)
        runs: list[SortedRun] = [
            self._table_rows(tables, words, start, stop, batch_bytes) for tables in self._levels
        ]
        runs.append(self._logs.rows(words, start, stop))
        return merge_runs(runs, self._cover, words, self._damage)

    def _table_rows(
        self,
        tables: list[TableFileMetadata],
        words: int,
        start: bytes | None,
        stop: bytes | None,
        batch_bytes: int,
    ) -> SortedRun:
        """Yield the rows of files that do not overlap, one file after the other."""
        for table in tables:
            if start is not None and table.largest_key < start:
                continue
            if stop is not None and table.smallest_key >= stop:
                continue
            with self._open(table) as reader:
                yield from TableRows(
                    reader,
                    words,
                    start,
                    stop,
                    newest_sequence=table.largest_sequence,
                    damage=self._damage,
                    batch_bytes=batch_bytes,
                )

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of all live rows, of any width, in the order of keys: for small
        databases such as `ledgers`. Some 5 us a row. Memory: all of it."""
        newest: dict[bytes, tuple[int, int, bytes]] = {}
        for key, sequence, code, value in self._all_versions():
            if key not in newest or newest[key][0] < sequence:
                newest[key] = sequence, code, value
        return [
            (key, value)
            for key, (sequence, code, value) in sorted(newest.items())
            if code == ValueType.VALUE and sequence >= self._cover.newest_at(key)
        ]

    def _all_versions(self) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield (key, sequence number, type, value) of all rows in tables and logs."""
        yield from self._logs.versions()
        for tables in self._levels:
            for table in tables:
                with self._open(table) as reader:
                    yield from read_versions(reader)


def _end_of(table: TableFileMetadata) -> bytes:
    """Return the exclusive end of a file's keys."""
    return table.largest_key + (b"" if table.has_exclusive_end else b"\0")
