"""RowCounter: whether a command has shown anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkstore.tables import Table


class RowCounter:
    """Counts the `rows` of tables on their way to an output."""

    def __init__(self) -> None:
        self.rows = 0

    def count(self, tables: Iterable[Table]) -> Iterator[Table]:
        """Yield the tables, and count their rows."""
        for table in tables:
            self.rows += len(table)
            yield table
