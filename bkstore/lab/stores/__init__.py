"""Implementations of an index, and other stores to compare with.

`index_sides` are indexes that hold the same rows: index files, RocksDB, memory, a memtable over
RocksDB; `chosen_sides` adds those of the command line. `tuned_rocks` is RocksDB with other options,
`ledger_deletion` a database whose ledgers are deleted, `shrinking_index` any index.
`read_cache` caches records of a storage, `bookie_process` serves a bookie in a process of its own.
`other_stores` wraps lmdb and LevelDB, `bitmaps` pyroaring.
"""

__all__: list[str] = []
