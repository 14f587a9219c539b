"""Loading a dump into a new index, RocksDB or index files, in one process or by Spark.

`run` has `load`: read it first. `dump_rows` reads a bookie's part of a dump, `declared_order` is
what its manifest says of order, `key_order` brings its rows into the order of an index's keys, one
a key, `dumped_states` joins the states of its ledgers. The index is made by
`offline.index_building`, and compared with the dump; `compared_ranges` has executors compare it
range by range.
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
