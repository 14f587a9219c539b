"""Work on directories of bookies that are not running, and on dumps of them.

`dump` writes the tables of bookies as Parquet, `load` builds an index from a dump, `analyses` finds
missing entries, disk usage and changes in a dump; `connect` opens one for SQL. `check` compares a
directory's index with its logs, `usage` computes its disk usage, `diff` compares two directories or
dumps. `rewrite` makes a new directory from one: converted, with a rebuilt index, or salvaged.
`index_building` builds the indexes of loads and rewrites, `spilled_rows` sorts rows on disk, and
`reading` reads the files of dumps in tasks and in order. `staging_directory` holds dumps, loads and
rewrites until they are complete, `worker_pool` runs the processes of dumps and checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.offline.analyses.sql_connection import connect

__all__ = [
    "analyses",
    "check",
    "connect",
    "diff",
    "dump",
    "index_building",
    "load",
    "reading",
    "rewrite",
    "spilled_rows",
    "staging_directory",
    "usage",
    "worker_pool",
]

__getattr__ = lazy_names(__name__, {"connect": "bkstore.offline.analyses.sql_connection"})
