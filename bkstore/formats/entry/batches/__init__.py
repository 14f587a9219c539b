"""Many records as one buffer, as encoder, journal, write cache and entry log exchange them.

`record_batch` has that buffer: read it first. `coding` encodes and verifies batches, `digests`
computes their digests, `ids` extracts ledger and entry ids. `formats.entry` exports all of it.
"""

__all__ = ["coding", "digests", "ids", "record_batch"]
