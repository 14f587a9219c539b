"""Loading a dump into a new index, RocksDB or index files, in one process or by Spark.

`run` has `load`: read it first. `dump_rows` reads a bookie's part of a dump, `declared_order` is
what its manifest says of order, `key_order` brings its rows into the order of an index's keys, one
a key, `index_files` writes them as table files or index files, `build` puts these together,
`ledger_states` adds the states, `verify` compares the index with the rows it was made of,
`compared_ranges` has executors do so range by range.
"""

from bkstore.offline.load.run import (
    Engine,
    LoadJob,
    LoadProgress,
    LoadResult,
    LocalEngine,
    To,
    load,
)

__all__ = ["Engine", "LoadJob", "LoadProgress", "LoadResult", "LocalEngine", "To", "load"]
