"""Reading a database through arrays, as rows that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.index.rocks.tables.database_reader import DatabaseReader

Pair = tuple[bytes, bytes]


def pairs_of(batches: Iterable[VersionedRows]) -> list[Pair]:
    """Return the keys and values of batches of rows."""
    return [
        (rows.key_at(row), value.to_bytes(8, "big", signed=True))
        for rows in batches
        for row, value in enumerate(rows.values.tolist())
    ]


def read_rows(
    path: Path, key_bytes: int, start: bytes | None = None, stop: bytes | None = None
) -> list[Pair]:
    """Return the rows of a database in [start, stop)."""
    return pairs_of(DatabaseReader(path).rows(key_bytes // 8, start, stop))
