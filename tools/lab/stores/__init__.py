"""Forms of an index, and what indexes are compared with.

`index_sides` are forms that hold the same rows: index files, RocksDB, memory, a memtable over
RocksDB, `tuned_rocks` (RocksDB with other options). `shrinking_rocks` deletes its ledgers.
`read_cache` keeps records of a storage. `peers` are lmdb and LevelDB with the calls that are asked
of RocksDB here.
"""
