"""The two RocksDB databases of db storage: `locations`, and `ledgers` with the ledger states.

`index` has `RocksIndex`: read it first; `reader` is its read-only half. What it needs of databases
is `readable_database`. Readers open `table_database`, which reads files as arrays; writers
`database`, which reads and writes by RocksDB, opened by `open_database`. `keys`, `rows` and
`options` define contents and settings, `ledger_listing` lists many ledgers by one scan of keys,
`bulk_rows` writes the table files of bulk loads; `errors` translates RocksDB's errors. `files` has
a database's directory, manifest and write-ahead logs without RocksDB, and the directory of links by
which RocksDB reads one without changing it. `tables` reads whole databases as arrays, and
`inspection` shows what is in their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.index.rocks.index import RocksIndex

__all__ = ["RocksIndex"]

__getattr__ = lazy_names(__name__, {"RocksIndex": "bkstore.index.rocks.index"})
