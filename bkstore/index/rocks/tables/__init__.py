"""A RocksDB database read as arrays, without RocksDB: table files, manifest and logs.

`database_reader` is the whole: its live rows, or those of a range of keys. Below it, `table_reader`
opens one table file, `block_rows` reads its rows in batches of arrays, `any_rows` one at a time;
`log_rows` has those of the write-ahead logs. `merge` brings the runs together, `range_cover` the
range deletes of all files. `key_order` compares keys in arrays; `damage` says what is unknown where
a block fails. The bytes are decoded by `bkstore.formats.rocksdb`.
"""
