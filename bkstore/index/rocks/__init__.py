"""The two RocksDB databases of db storage: `locations`, and `ledgers` with their states.

`index` has `RocksIndex` and is the one to read first; `reader` is the half of it that changes
nothing. `database` opens one database and reads it in arrays; `keys`, `rows` and `options` say
what is in it and how it is set up, `listing` cuts one scan of keys into many ledgers. The others
let a directory be read without touching it: `scratch_links`, and `manifest_file` over
`log_framing`, the only modules that know RocksDB's own files. `errors` and `after_fork` are about
its refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_faces import lazy_names

if TYPE_CHECKING:
    from bkstore.index.rocks.index import RocksIndex

__all__ = ["RocksIndex"]

__getattr__ = lazy_names(__name__, {"RocksIndex": "bkstore.index.rocks.index"})
