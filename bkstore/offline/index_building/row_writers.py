"""Writing ordered rows as an index's files: RocksDB table files, or index files in a tree.

What is written has no reader yet: `assembly` puts it together. So any number of attempts may
write beside each other, each in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from rocksdict import SstFileWriter

from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks.options import location_options

TABLE_ROWS = 1 << 22
"""Rows of a table file: about 40 MiB, of the size that RocksDB's own compaction makes."""

_AT_ONCE = 1 << 14
"""Rows whose keys are Python objects at one time: what stays in the processor's cache."""

_LEDGERS_PER_FLUSH = 4096


class TableFile(NamedTuple):
    """A finished piece: a RocksDB table file, or a tree of index files (`wide` is False then).

    `directory` is the number of the ledger directory it is for, `wide` whether its keys have a
    scope.
    """

    directory: int
    wide: bool
    path: str
    rows: int
    bytes: int


class RowWriter(Protocol):
    """Takes ordered rows of one directory after the other; `finish` says what was made."""

    def add(self, directory: int, rows: IndexBatch) -> None:
        """Take the next rows of a directory; keys ascend from call to call."""

    def finish(self) -> list[TableFile]:
        """Make what was written durable, and return it in order."""


def row_writer(
    to: str,
    folder: Path,
    files: Files = OS_FILES,
    states: Mapping[LedgerId, LedgerState] | None = None,
) -> RowWriter:
    """Return the writer for a layout, which writes into `folder`.

    Index files get their ledger's state at once, if `states` has it: one sync a file less.
    """
    with writing(folder):
        files.makedirs(folder)
    if to == "idx":
        return TreeWriter(folder, HierarchicalIndex(folder, writable=True, files=files), states)
    return TableWriter(folder)


def rows_of_directory(rows: IndexBatch, number: int, directories: int) -> IndexBatch:
    """Return the rows of one of the ledger directories: ledger L lies in number ``L mod n``."""
    if directories == 1:
        return rows
    here = rows.ledger_id.view(np.uint64) % np.uint64(directories) == number
    return rows if here.all() else IndexBatch(*(column[here] for column in rows))


class TableWriter:
    """Writes RocksDB table files, each of one directory and one key width. 0.2 us a row.

    `WriteFailed` where the system refuses; what was begun stays in the folder then.
    """

    def __init__(self, folder: Path, most_rows: int = TABLE_ROWS) -> None:
        self._folder = folder
        self._most_rows = most_rows
        self._made: list[TableFile] = []
        self._writer: SstFileWriter | None = None
        self._path = folder
        self._kind = (0, False)
        self._rows = 0

    def add(self, directory: int, rows: IndexBatch) -> None:
        """Take the next rows of a directory; a table file ends when it is full."""
        narrow = int(np.count_nonzero(rows.scope_id == 0))  # they stand before the others
        for part, wide in ((slice(narrow), False), (slice(narrow, None), True)):
            taken = IndexBatch(*(column[part] for column in rows))
            if taken.entry_id.size:
                self._add((directory, wide), taken)

    def _add(self, kind: tuple[int, bool], rows: IndexBatch) -> None:
        at, size = 0, rows.entry_id.size
        while at < size:
            if self._writer is None or self._kind != kind or self._rows >= self._most_rows:
                self._begin(kind)
            stop = min(size, at + _AT_ONCE, at + self._most_rows - self._rows)
            self._write(rows, slice(at, stop), kind[1])
            self._rows += stop - at
            at = stop

    def _begin(self, kind: tuple[int, bool]) -> None:
        self._end()
        self._kind, self._rows = kind, 0
        self._path = self._folder / f"{len(self._made):05d}.sst"
        with _table_errors(self._path):
            self._writer = SstFileWriter(location_options())
            self._writer.open(str(self._path))

    def _write(self, rows: IndexBatch, part: slice, wide: bool) -> None:
        columns = [rows.scope_id[part]] if wide else []
        keys = _big_endian([*columns, rows.ledger_id[part], rows.entry_id[part]])
        values = _big_endian([rows.location[part]])
        writer = self._writer
        assert writer is not None
        with _table_errors(self._path):
            for key, value in zip(keys, values):
                writer[key] = value

    def _end(self) -> None:
        if self._writer is None:
            return
        with _table_errors(self._path):
            self._writer.finish()
            size = self._path.stat().st_size
        self._made.append(TableFile(*self._kind, str(self._path), self._rows, size))
        self._writer = None

    def finish(self) -> list[TableFile]:
        """End the last file and return all of them. RocksDB syncs each as it ends."""
        self._end()
        return self._made


def _big_endian(columns: list[Int64Array]) -> list[bytes]:
    """Return the words of each row as bytes; through a void view, which keeps trailing zeros."""
    words = np.empty((columns[0].size, len(columns)), ">i8")
    for at, column in enumerate(columns):
        words[:, at] = column
    made: list[bytes] = words.view(f"V{8 * len(columns)}").ravel().tolist()
    return made


@contextmanager
def _table_errors(path: Path) -> Iterator[None]:
    """Raise `WriteFailed` for what RocksDB's writer refuses, which it says as plain text."""
    with writing(path):
        try:
            yield
        except Exception as error:
            if type(error) is not Exception:
                raise
            raise WriteFailed(path, OSError(str(error))) from error


class TreeWriter:
    """Writes index files by `index`, which lies in `folder`; about 30 ns a row.

    A ledger costs about a millisecond: its file is synced. `advice` ends the error for a ledger
    whose file would have more holes than it may have.
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
        self._last: LedgerId | None = None
        self._rows = 0
        self._ledgers = 0

    def add(self, directory: int, rows: IndexBatch) -> None:
        """Take the next rows; there is one tree, whatever the directory."""
        for ledger, entries, locations in rows.by_ledger():
            if ledger != self._last:
                self._begin(ledger)
            try:
                self._index.put_many(ledger, entries, locations)
            except InvalidArgument as error:
                raise InvalidArgument(f"ledger {ledger}: {error}: {self._advice}") from error
        self._rows += rows.entry_id.size

    def _begin(self, ledger: LedgerId) -> None:
        """Begin a ledger's file; those before it are complete."""
        if self._ledgers % _LEDGERS_PER_FLUSH == _LEDGERS_PER_FLUSH - 1:
            self._index.flush()
        self._last = ledger
        self._ledgers += 1
        if ledger in self._states:
            self._index.set_state(ledger, self._states[ledger])

    def finish(self) -> list[TableFile]:
        """Make the files durable; return the tree, or nothing where it has no row."""
        self._index.close()
        if not self._rows:
            return []
        return [TableFile(0, False, str(self._folder), self._rows, 0)]
