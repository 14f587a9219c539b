"""RocksDB's log format and write batches: the records of MANIFEST files and write-ahead logs.

`framing` cuts a file into its records, and tells the torn end that a crash leaves from damage: read
it first. `write_batch` decodes the records of a write-ahead log to rows in columns. The records of
a MANIFEST are in `bkstore.formats.rocksdb.manifest`.
"""

__all__ = ["framing", "write_batch"]
