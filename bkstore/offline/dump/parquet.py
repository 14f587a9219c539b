"""Parquet files of the declared tables: sorted, delta-encoded, zstd, in bounded memory."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import syncing, writing
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange, OrderWatch
from bkstore.tables import Schema, Table, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 20
"""Rows of a row group, the unit that readers skip by its least and greatest ids."""

ROW_GROUPS = MappingProxyType({"groups": 1 << 15})
"""Of tables that are read by ranges of ledgers, of all bookies at once: fewer rows."""

_KEYS = "master_key"
"""A file with this column is its user's only: who has a ledger's key can write and fence it."""

_ENCODINGS = {
    "int64": "DELTA_BINARY_PACKED",
    "int32": "DELTA_BINARY_PACKED",
    "string": "DELTA_BYTE_ARRAY",
    "binary": "DELTA_BYTE_ARRAY",
    "bool": "PLAIN",
}


class ParquetFile:
    """One Parquet file that is written piece by piece, in row groups (`ROW_GROUP`, `ROW_GROUPS`).

    Integers are DELTA_BINARY_PACKED and text DELTA_BYTE_ARRAY, without dictionaries, zstd
    level 1: sorted ids and positions cost a few bits each. The column `bookie`, which is one
    value throughout, is PLAIN: after zstd it costs no more, and half the time. Use as a
    context manager: the file is durable when it is left, and gone if that was by an error.
    `WriteFailed` where the system refuses. Memory: one row group.
    """

    def __init__(self, path: Path, schema: Schema, files: Files = OS_FILES) -> None:
        require_pyarrow("dump")
        import pyarrow.parquet as pq

        self.path = path
        self.schema = schema
        self.rows = 0
        self.bytes = 0
        self._files = files
        self.order = OrderWatch() if schema.name in SORTED_BY else None
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._row_group = ROW_GROUPS.get(schema.name, ROW_GROUP)
        encodings = {c.name: _ENCODINGS[c.kind] for c in schema.columns} | {"bookie": "PLAIN"}
        with writing(path):
            self._sink = _Sink(path, files, 0o600 if _KEYS in schema.names else 0o644)
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
        """Append rows; a row group is written when enough have come together."""
        if len(table):
            self.write_arrow(table.to_arrow())

    def write_arrow(self, table: pa.Table) -> None:
        """Append rows that are Arrow already, of the schema's types."""
        self._watch(table)
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self.rows += len(table)
        if self._waiting_rows >= ROW_GROUP:
            self._write_groups(self._waiting_rows // self._row_group * self._row_group)

    def _watch(self, table: pa.Table) -> None:
        if self.order is not None and len(table):
            names = SORTED_BY[self.schema.name]
            if self.order.add([table.column(name).to_numpy() for name in names]) is not None:
                self.order = None

    @property
    def ledgers(self) -> LedgerRange | None:
        """From which ledger to which, if all rows came in the table's order."""
        return None if self.order is None else self.order.seen()

    def _write_groups(self, count: int) -> None:
        import pyarrow as pa

        if not count:
            return
        together = pa.concat_tables(self._waiting)
        with writing(self.path):
            self._file.write_table(together.slice(0, count), row_group_size=self._row_group)
        rest = together.slice(count)
        self._waiting, self._waiting_rows = [rest] if len(rest) else [], len(rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        whole = False
        try:
            if kind is None:
                self._write_groups(self._waiting_rows)
                with writing(self.path):
                    self._file.close()
                with syncing(self.path):
                    self._files.fsync(self._sink.fd)
                self.bytes = self._sink.tell()
                whole = True
        finally:
            self._waiting = []
            self._sink.give_up()
            self._file.close()  # its footer goes nowhere; left open it would write it later
            self._sink.close()
            if not whole:
                with suppress(FileNotFoundError):
                    self._files.unlink(self.path)


class _Sink(io.RawIOBase):
    """A new file to which pyarrow writes through a `Files`."""

    def __init__(self, path: Path, files: Files, mode: int) -> None:
        super().__init__()
        self._files = files
        self._at = 0
        self._given_up = False
        self.fd = files.fresh(path, mode)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        size = len(data)
        if not self._given_up:
            self._files.pwrite(self.fd, data, self._at)
        self._at += size
        return size

    def give_up(self) -> None:
        """Take no more bytes."""
        self._given_up = True

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._files.close(self.fd)
