"""Rows of the tables of `bkstore rocks`."""

from __future__ import annotations

from bkstore.index.rocks.inspection.row_tables import RocksFileRow, RocksRow
from bkstore.tables import ROCKS_FILES, ROCKS_ROWS


def test_fields_are_the_columns() -> None:
    """A row is stored by position, so its fields are the columns of its table, in their order."""
    assert ROCKS_FILES.names == list(RocksFileRow._fields)
    assert ROCKS_ROWS.names == list(RocksRow._fields)
