"""The two RocksDB databases of db storage: `locations`, and `ledgers` with the ledger states.

`index` has `RocksIndex`: read it first; `reader` is its read-only half. `database` opens one
database and reads it in arrays; `keys`, `rows` and `options` define its contents and settings,
`ledger_listing` lists many ledgers by one scan of keys, `bulk_rows` writes the table files of bulk
loads. `scratch_links` lets RocksDB read a directory without changing it; `errors` translates
RocksDB's errors. `files` has a database's directory, manifest and write-ahead logs without RocksDB,
`tables` reads whole databases as arrays, and `inspection` shows what is in their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.index.rocks.index import RocksIndex

__all__ = ["RocksIndex"]

__getattr__ = lazy_names(__name__, {"RocksIndex": "bkstore.index.rocks.index"})
