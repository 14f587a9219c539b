"""Byte formats of a bookie's files: one module a format, one page each in docs/formats/.

Pure functions from bytes to values and back; no module here opens a file.
"""

__all__ = ["idxfile", "ledgerdata"]
