"""What RocksDB's own tools show of a database's files, for a bookie's databases, without RocksDB.

`database_files` reads the manifest and lists the files with levels, sizes and ranges: read it
first. `log_rows` has the rows of a write-ahead log, `table_contents` the properties and rows of a
table file, `live_rows` those that are neither deleted nor overwritten; all yield `internal_rows`.
`row_tables` makes them rows of tables, with keys and values as a bookie means them; `key_meanings`
decodes keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.index.rocks.inspection.database_files import DatabaseFiles

__all__ = ["DatabaseFiles"]

__getattr__ = lazy_names(
    __name__, {"DatabaseFiles": "bkstore.index.rocks.inspection.database_files"}
)
