"""Write ordered rows as an index's files: RocksDB table files, or a tree of index files.

Nothing reads the files before `assembly` does, so attempts may run at once, each in its own folder.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks.tables.table_writer import TableFileWriter

MAX_TABLE_ROWS = 1 << 22
"""Rows of a table file: about 40 MiB, of the size that RocksDB's own compaction makes."""

_LEDGERS_PER_FLUSH = 4096


class TableFile(NamedTuple):
    """A finished RocksDB table file, or a tree of index files.

    `directory` is the number of its ledger directory; `has_scope`: its keys have a scope.
    """

    directory: int
    has_scope: bool
    path: str
    rows: int
    bytes: int


class RowWriter(Closeable):
    """Writes ordered rows, one directory after the other; `finish` returns the files. Close it: an
    attempt that fails holds an open file until then."""

    @abstractmethod
    def add(self, directory: int, rows: IndexBatch) -> None:
        """Write the next rows of a directory; keys ascend from call to call."""

    @abstractmethod
    def finish(self) -> list[TableFile]:
        """Make the files durable, and return them in order."""


def open_row_writer(
    layout: str,
    folder: Path,
    files: Files = OS_FILES,
    states: Mapping[LedgerId, LedgerState] | None = None,
) -> RowWriter:
    """Create `folder`; return the writer of index rows in this layout. With index files it writes
    each ledger's state from `states` along with its rows, which saves a sync a ledger."""
    with convert_write_errors(folder):
        files.makedirs(folder)
    if layout == "idx":
        return TreeWriter(folder, HierarchicalIndex(folder, writable=True, files=files), states)
    return TableWriter(folder, files=files)


def rows_of_directory(rows: IndexBatch, dir_index: int, directory_count: int) -> IndexBatch:
    """Return the rows of one of the ledger directories: ledger L lies in number ``L mod n``."""
    if directory_count == 1:
        return rows
    is_own = rows.ledger_id.view(np.uint64) % np.uint64(directory_count) == dir_index
    return rows if is_own.all() else IndexBatch(*(column[is_own] for column in rows))


class TableWriter(RowWriter):
    """Writes RocksDB table files, each of one directory and one key width. 0.14 us a row.

    Raises `WriteFailed` if the system refuses; an unfinished file then stays in the folder.
    """

    def __init__(
        self, folder: Path, max_rows: int = MAX_TABLE_ROWS, files: Files = OS_FILES
    ) -> None:
        self._folder = folder
        self._max_rows = max_rows
        self._files = files
        self._finished: list[TableFile] = []
        # The open table file, and its kind: (directory, has_scope).
        self._writer: TableFileWriter | None = None
        self._file_kind = (0, False)

    def add(self, directory: int, rows: IndexBatch) -> None:
        """Write the next rows of a directory; a table file ends when it is full."""
        # Rows of scope 0 come first; those of other scopes are in table files of their own.
        unscoped = int(np.count_nonzero(rows.scope_id == 0))
        for part, has_scope in ((slice(unscoped), False), (slice(unscoped, None), True)):
            part_rows = IndexBatch(*(column[part] for column in rows))
            if part_rows.entry_id.size:
                self._add_rows(part_rows, (directory, has_scope))

    def _add_rows(self, rows: IndexBatch, file_kind: tuple[int, bool]) -> None:
        """Write rows to table files of one kind: the directory, and whether keys have a scope.
        Begin another file when the open one is full or of another kind."""
        _directory, has_scope = file_kind
        scope_columns = [rows.scope_id] if has_scope else []
        columns = [*scope_columns, rows.ledger_id, rows.entry_id]
        start, size = 0, rows.entry_id.size
        while start < size:
            writer = self._writer
            if writer is None or self._file_kind != file_kind or writer.rows >= self._max_rows:
                writer = self._begin_file(file_kind)
            stop = min(size, start + self._max_rows - writer.rows)
            writer.add([column[start:stop] for column in columns], rows.location[start:stop])
            start = stop

    def _begin_file(self, file_kind: tuple[int, bool]) -> TableFileWriter:
        """Open the next table file, of a directory, for ledgers with or without a scope."""
        self._finish_file()
        self._file_kind = file_kind
        path = self._folder / f"{len(self._finished):05d}.sst"
        _directory, has_scope = file_kind
        key_columns = 3 if has_scope else 2  # the scope, if it is not 0, ledger and entry
        self._writer = TableFileWriter(path, key_columns, self._files)
        return self._writer

    def _finish_file(self) -> None:
        """Close the open table file and note its size; do nothing if none is open."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with writer:
                size = writer.finish()
            file = TableFile(*self._file_kind, str(writer.path), writer.rows, size)
            self._finished.append(file)

    def finish(self) -> list[TableFile]:
        """End the last file and return all of them. Each is synced as it ends."""
        self._finish_file()
        return self._finished

    def close(self) -> None:
        """Close the open table file, unfinished. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class TreeWriter(RowWriter):
    """Writes index files by `index`, which lies in `folder`; 30 ns a row, 1 ms a ledger to sync.

    `advice` ends the error for a ledger whose file would have too many holes.
    """

    def __init__(
        self,
        folder: Path,
        index: HierarchicalIndex,
        states: Mapping[LedgerId, LedgerState] | None = None,
        advice: str = "load to rocksdb",
    ) -> None:
        self._folder = folder
        self._index = index
        self._states = states or {}
        self._advice = advice
        self._last_ledger: LedgerId | None = None
        self._row_count = 0
        self._ledger_count = 0

    def add(self, directory: int, rows: IndexBatch) -> None:
        """Write the next rows. `directory` is not used: all directories share one tree."""
        for ledger, entries, locations in rows.by_ledger():
            if ledger != self._last_ledger:
                self._begin_file(ledger)
            try:
                self._index.put_many(ledger, entries, locations)
            except InvalidArgument as error:  # too many holes: name the ledger, and a way out
                raise InvalidArgument(f"ledger {ledger}: {error}: {self._advice}") from error
        self._row_count += rows.entry_id.size

    def _begin_file(self, ledger: LedgerId) -> None:
        """Begin the index file of a ledger with its state. Flush after many ledgers, so that
        the index does not note ever more unsynced files."""
        self._last_ledger = ledger
        self._ledger_count += 1
        if self._ledger_count % _LEDGERS_PER_FLUSH == 0:
            self._index.flush()
        if ledger in self._states:
            self._index.set_state(ledger, self._states[ledger])

    def finish(self) -> list[TableFile]:
        """Make the files durable; return the tree, or nothing if it has no row."""
        self._index.close()
        if not self._row_count:
            return []
        # A tree may span directories and scopes, and has no size: these fields are not used.
        return [TableFile(0, False, str(self._folder), self._row_count, 0)]

    def close(self) -> None:
        """Close the index. Idempotent."""
        self._index.close()
