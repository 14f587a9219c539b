"""Forms of an index, and what indexes are compared with.

`index_sides` are forms that hold the same rows: index files, RocksDB, memory, `layered` (a memtable
over RocksDB), `tuned_rocks` (RocksDB with other options). `peers` are lmdb and LevelDB with the
calls that are asked of RocksDB here.
"""
