"""Byte formats of a bookie's files: a module and a page in docs/formats/ for each.

Pure functions from bytes to values and back; no module here opens a file. `entry` is the record
that all of them contain: read it first. `journal` and `entrylog` are the logs, `idxfile` and
`ledgerdata` the index data of a ledger, `cookie` the file that identifies a bookie;
`state_checks` finds contradictions in a ledger's state. Ledger metadata is in `metadata`, syntaxes
that several formats share (frames, JSON, protobuf's text) in `syntax`.
"""

__all__ = [
    "cookie",
    "entry",
    "entrylog",
    "idxfile",
    "journal",
    "ledgerdata",
    "state_checks",
]
