"""Write Parquet files of the declared tables: delta-encoded, zstd, in bounded memory."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange, OrderCheck
from bkstore.tables import Schema, Table, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 1 << 20
"""Rows of a row group, the unit that readers skip by its minimum and maximum ids."""

TABLE_ROW_GROUP_ROWS = MappingProxyType({"groups": 1 << 15})
"""Smaller row groups of tables that are read by ledger range, all bookies at once."""

_KEY_COLUMN = "master_key"
"""A file with this column is private: the master key of a ledger permits writes and fencing."""

_ENCODINGS = {
    "int64": "DELTA_BINARY_PACKED",
    "int32": "DELTA_BINARY_PACKED",
    "string": "DELTA_BYTE_ARRAY",
    "binary": "DELTA_BYTE_ARRAY",
    "bool": "PLAIN",
}


class ParquetTableWriter:
    """A Parquet file that is written in row groups (`ROW_GROUP_ROWS`, `TABLE_ROW_GROUP_ROWS`).

    Integers are DELTA_BINARY_PACKED and text DELTA_BYTE_ARRAY, without dictionaries, zstd level 1:
    sorted ids and positions take a few bits each. The constant column `bookie` is PLAIN: no larger
    after zstd, in half the time. As a context manager it makes the file durable on a normal exit
    and removes it after an error. Raises `WriteFailed`. Memory: one row group.
    """

    def __init__(self, path: Path, schema: Schema, files: Files = OS_FILES) -> None:
        require_pyarrow("dump")
        import pyarrow.parquet as pq

        self.path = path
        self.schema = schema
        self.row_count = 0
        self.byte_count = 0
        self._files = files
        self.order_check = OrderCheck() if schema.name in SORTED_BY else None
        self._pending: list[Any] = []
        self._pending_rows = 0
        self._group_rows = TABLE_ROW_GROUP_ROWS.get(schema.name, ROW_GROUP_ROWS)
        encodings = {c.name: _ENCODINGS[c.kind] for c in schema.columns} | {"bookie": "PLAIN"}
        with convert_write_errors(path):
            mode = 0o600 if _KEY_COLUMN in schema.names else 0o644  # master keys are secret
            self._sink = _FileSink(path, files, mode)
            try:
                self._file = pq.ParquetWriter(
                    self._sink,
                    schema.to_arrow(),
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=False,
                    column_encoding={name: encodings[name] for name in schema.names},
                )
            except BaseException:
                self._sink.close()
                raise

    def write(self, table: Table) -> None:
        """Append rows; full row groups are written at once."""
        if len(table):
            self.write_arrow(table.to_arrow())

    def write_arrow(self, table: pa.Table) -> None:
        """Append Arrow rows of the schema's types."""
        self._check_order(table)
        self._pending.append(table)
        self._pending_rows += len(table)
        self.row_count += len(table)
        if self._pending_rows >= ROW_GROUP_ROWS:  # write whole row groups, keep the rest
            self._write_groups(self._pending_rows // self._group_rows * self._group_rows)

    def end_row_group(self) -> None:
        """Write the rows so far as row groups of their own: they need no memory any more."""
        self._write_groups(self._pending_rows)

    def _check_order(self, table: pa.Table) -> None:
        """Note if rows are out of order: then the file is not declared sorted."""
        if self.order_check is not None and len(table):
            columns = [table.column(name).to_numpy() for name in SORTED_BY[self.schema.name]]
            if self.order_check.add(columns) is not None:
                self.order_check = None

    @property
    def ledger_range(self) -> LedgerRange | None:
        """The first and the last ledger, if all rows came in the table's order."""
        return None if self.order_check is None else self.order_check.ledger_range()

    def _write_groups(self, row_count: int) -> None:
        """Write the first waiting rows as whole row groups; the others go on waiting."""
        import pyarrow as pa

        if not row_count:
            return
        pending_rows = pa.concat_tables(self._pending)
        with convert_write_errors(self.path):
            self._file.write_table(
                pending_rows.slice(0, row_count), row_group_size=self._group_rows
            )
        tail = pending_rows.slice(row_count)
        self._pending, self._pending_rows = [tail] if len(tail) else [], len(tail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Complete the file and make it durable; remove it after an error, here or in the block."""
        is_complete = False
        try:
            if exc_type is None:
                self._write_groups(self._pending_rows)
                with convert_write_errors(self.path):
                    self._file.close()
                with convert_sync_errors(self.path):
                    self._files.fsync(self._sink.fd)
                self.byte_count = self._sink.tell()
                is_complete = True
        finally:
            self._pending = []
            self._sink.drop_writes()
            self._file.close()  # the sink drops its footer; left open it would be written later
            self._sink.close()
            if not is_complete:
                with suppress(FileNotFoundError):
                    self._files.unlink(self.path)


class _FileSink(io.RawIOBase):
    """A new file that pyarrow writes through a `Files`."""

    def __init__(self, path: Path, files: Files, mode: int) -> None:
        super().__init__()
        self._files = files
        self._position = 0
        self._drops_bytes = False
        self.fd = files.create_new(path, mode)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = len(data)
        if not self._drops_bytes:
            self._files.pwrite(self.fd, data, self._position)
        self._position += size
        return size

    def drop_writes(self) -> None:
        """Drop all further bytes."""
        self._drops_bytes = True

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._files.close(self.fd)
