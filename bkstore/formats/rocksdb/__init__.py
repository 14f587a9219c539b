"""RocksDB's own files as bytes, without RocksDB and without I/O.

`coding` has the integers and strings that all of its files consist of, `checksums` and
`compression` what protects and packs a block, `keys` the internal keys of rows. `log` has the
records of manifests and write-ahead logs, `manifest` a database's description of its files,
`table` the parts of table files. Errors are `CorruptionError`s without a file, with the offset in
the bytes given. Source: RocksDB's `util/coding.h`, `table/format.cc`, `util/compression.h`,
`db/dbformat.h`.
"""

__all__ = ["checksums", "coding", "compression", "keys"]
