"""Byte formats of a bookie's files: one module a format, one page each in docs/formats/.

Pure functions from bytes to values and back; no module here opens a file. `entry` is the record
that travels through all of them: read it first. `journal` and `entrylog` are the logs, `idxfile`
and `ledgerdata` what indexes keep of a ledger, `cookie` the file that names a bookie;
`state_checks` says what contradicts itself in a ledger's state. Ledger metadata is in `metadata`,
what several formats are written in (frames, JSON, protobuf's text) in `syntax`.
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
