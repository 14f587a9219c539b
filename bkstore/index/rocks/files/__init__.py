"""A RocksDB database's directory, read without RocksDB: locks, manifest and write-ahead logs.

`database_directory` finds out whether a database is being written, and checks its files;
`manifest_file` reads the manifest and checks that the files that it names are here; `log_file`
reads the records of manifests and write-ahead logs. `after_fork` knows whether RocksDB's threads
run in this process, `scratch_links` lets RocksDB read a directory without changing it,
`running_copies` copies databases that are open. The bytes are decoded by `bkstore.formats.rocksdb`.
"""

__all__ = [
    "after_fork",
    "database_directory",
    "log_file",
    "manifest_file",
    "running_copies",
    "scratch_links",
]
