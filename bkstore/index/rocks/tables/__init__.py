"""A RocksDB database as arrays, without RocksDB: table files, manifest and logs.

`database_reader` is the whole: its live rows, or those of a range of keys. Below it, `table_reader`
opens one table file, `block_rows` reads its rows in batches of arrays, `any_rows` one at a time,
`key_lookups` finds single keys; `block_cache` keeps blocks that were read last. `unflushed_rows`
has the rows of the write-ahead logs. `merge` brings the runs together, `range_cover` the range
deletes of all files. `key_order` compares keys in arrays; `damage` says what is unknown where a
block fails. `table_writer` writes a table file. The bytes are coded by `bkstore.formats.rocksdb`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.index.rocks.tables.damage import UnknownRange
    from bkstore.index.rocks.tables.database_reader import DatabaseReader
    from bkstore.index.rocks.tables.table_reader import TableReader
    from bkstore.index.rocks.tables.table_writer import TableFileWriter

__all__ = ["DatabaseReader", "TableFileWriter", "TableReader", "UnknownRange"]

__getattr__ = lazy_names(
    __name__,
    {
        "DatabaseReader": "bkstore.index.rocks.tables.database_reader",
        "TableFileWriter": "bkstore.index.rocks.tables.table_writer",
        "TableReader": "bkstore.index.rocks.tables.table_reader",
        "UnknownRange": "bkstore.index.rocks.tables.damage",
    },
)
