"""Many records as one buffer: the currency between encoder, journal, write cache and entry log.

`record_batch` is that currency: read it first. `coding` encodes and verifies batches, `digests`
has their digests, `ids` says whose their records are. The faces of all are `formats.entry`'s.
"""

__all__ = ["coding", "digests", "ids", "record_batch"]
