"""Byte formats of a bookie's files: a module and a page in docs/formats/ for each.

Pure functions from bytes to values and back, without I/O. `entry` is the record that all of them
contain: read it first. `journal` and `entrylog` are the logs, `idxfile` and `ledgerdata` the index
data of a ledger, `cookie` identifies a bookie, `state_checks` checks a ledger's state. Ledger
metadata is in `metadata`, shared syntaxes (frames, JSON, protobuf's text) in `syntax`, RocksDB's
own files in `rocksdb`.
"""

__all__ = ["cookie", "entry", "entrylog", "idxfile", "journal", "ledgerdata", "state_checks"]
