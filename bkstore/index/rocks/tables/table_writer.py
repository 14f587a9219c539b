"""Writing a table file from rows in order, without RocksDB: an open database ingests it. Format:
`docs/formats/rocksdb.md`."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.rocksdb.table.key_hash import UInt64Array
from bkstore.formats.rocksdb.table.table_builder import TableBuilder, TableFileSettings
from bkstore.ids import Int64Array

_ROWS_PER_WRITE = 1 << 16


class TableFileWriter:
    """A new table file of location rows: keys of `words` * 8 bytes, values of 8. Written through
    `files`, and synced by `finish`; close it.

    Raises `WriteFailed` if the system refuses: an unfinished file stays then. Memory: 16 bytes a
    row of the file. Some 120 ns a row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with TableFileWriter(Path(top, "rows.sst"), words=2) as writer:
    ...         writer.add([np.array([5, 5]), np.array([7, 8])], np.array([1028, 1100]))
    ...         writer.finish() == Path(top, "rows.sst").stat().st_size, writer.rows
    (True, 2)
    """

    def __init__(
        self,
        path: Path,
        words: int,
        files: Files = OS_FILES,
        settings: TableFileSettings | None = None,
    ) -> None:
        """Create the file, in place of a leftover at `path`; `settings` are those of
        `TableBuilder`."""
        self.path = path
        self._files = files
        self._builder = TableBuilder(words, settings)
        self._bytes = 0
        with convert_write_errors(path):
            fd = files.create_new(path)
        self._fd: int | None = fd
        # Close the file if the writer is collected without `close`.
        self._cleanup = weakref.finalize(self, files.close, fd)
        self._cleanup.atexit = False

    @property
    def rows(self) -> int:
        """The number of rows that were added."""
        return self._builder.rows

    def add(self, key_columns: list[Int64Array] | UInt64Array, values: Int64Array) -> None:
        """Add rows. `key_columns` has an array for each 64-bit word of the keys, such as ledgers
        and entries, int64[n] or uint64[n]; `values` is int64[n]. Raises `InvalidArgument` unless
        keys ascend as unsigned numbers, also from call to call."""
        self._open_fd()
        for start in range(0, values.size, _ROWS_PER_WRITE):
            chunk = slice(start, start + _ROWS_PER_WRITE)
            keys = np.array([word[chunk] for word in key_columns]).view(np.uint64)
            self._write(self._builder.add(keys, values[chunk]))

    def finish(self) -> int:
        """Write the rest of the file, sync and close it; return its size. Raises `InvalidArgument`
        if it has no row."""
        fd = self._open_fd()
        self._write(self._builder.finish())
        with convert_write_errors(self.path):
            self._files.fsync(fd)
        self.close()
        return self._bytes

    def _write(self, data: bytes) -> None:
        if data:
            with convert_write_errors(self.path):
                self._files.pwrite(self._open_fd(), data, self._bytes)
            self._bytes += len(data)

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path}: the table file is closed")
        return self._fd

    def close(self) -> None:
        """Close the file, finished or not. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._cleanup.detach()
            with convert_write_errors(self.path):
                self._files.close(fd)

    def __enter__(self) -> TableFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
