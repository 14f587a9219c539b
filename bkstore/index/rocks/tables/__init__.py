"""Table files of a RocksDB database, read as arrays without RocksDB.

`table_reader` opens one file: its properties, its index, and its range deletes. `block_rows` reads
its data blocks in batches, and `point_lookup` one key. `damage` has what is reported where a block
fails. The bytes are decoded by `bkstore.formats.rocksdb.table`.
"""
