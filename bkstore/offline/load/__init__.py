"""Load a dump into a new index, RocksDB or index files, in one process or by Spark.

Read `load_job` first: it has `load`. `dump_rows` reads a bookie's part of a dump, `declared_order`
finds the files that are declared sorted, `key_order` yields rows in the order of index keys, one
per key, and `merged_ledger_states` merges the states of each ledger. `offline.index_building`
builds the index, which is compared with the dump: `compared_ranges` does so range by range.
"""

from bkstore.former_names import former_exports
from bkstore.offline.load.load_job import (
    IndexLayout,
    LoadEngine,
    LoadJob,
    LoadProgress,
    LoadResult,
    LocalLoadEngine,
    load,
)

__all__ = [
    "IndexLayout",
    "LoadEngine",
    "LoadJob",
    "LoadProgress",
    "LoadResult",
    "LocalLoadEngine",
    "load",
]

__getattr__ = former_exports(
    __name__, Engine="LoadEngine", LocalEngine="LocalLoadEngine", To="IndexLayout"
)
