"""Parquet files of the declared tables: sorted, delta-encoded, zstd, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bkstore.tables import Schema, Table, require_pyarrow

__all__ = ["ParquetFile"]

ROW_GROUP = 1 << 20


class ParquetFile:
    """One Parquet file that is written piece by piece, in row groups of about a million rows.

    Integers are DELTA_BINARY_PACKED and text DELTA_BYTE_ARRAY, without dictionaries, zstd
    level 1: sorted ids and positions cost a few bits each. Use as a context manager; the file
    appears under its name only when it is complete.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        require_pyarrow("dump")
        import pyarrow.parquet as pq

        self.path = path
        self.schema = schema
        self.rows = 0
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._partial = path.with_name(path.name + ".partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        encodings = {"int64": "DELTA_BINARY_PACKED", "int32": "DELTA_BINARY_PACKED"}
        encodings |= {"string": "DELTA_BYTE_ARRAY", "binary": "DELTA_BYTE_ARRAY", "bool": "PLAIN"}
        self._file = pq.ParquetWriter(
            str(self._partial),
            schema.to_arrow(),
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            column_encoding={c.name: encodings[c.kind] for c in schema.columns},
        )

    def write(self, table: Table) -> None:
        """Append rows; a row group is written when enough have come together."""
        if not len(table):
            return
        self._waiting.append(table.to_arrow())
        self._waiting_rows += len(table)
        self.rows += len(table)
        if self._waiting_rows >= ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._file.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP)
        self._waiting, self._waiting_rows = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._write_group()
        finally:
            self._file.close()
        if kind is None:
            self._partial.replace(self.path)
        else:
            self._partial.unlink(missing_ok=True)
