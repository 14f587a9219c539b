"""Byte formats of a bookie's files: one module a format, one page each in docs/formats/.

Pure functions from bytes to values and back; no module here opens a file. `entry` is the record
that travels through all of them: read it first. `journal` and `entrylog` are the logs, `idxfile`
and `ledgerdata` what indexes keep of a ledger, `cookie` the file that names a bookie. `digest`,
`framing` and `state_checks` serve several of them. Ledger metadata is in `metadata`, what is
written in JSON or protobuf's text in `syntax`.
"""

__all__ = [
    "cookie",
    "digest",
    "entry",
    "entrylog",
    "framing",
    "idxfile",
    "journal",
    "ledgerdata",
    "state_checks",
]
