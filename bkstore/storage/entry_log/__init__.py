"""Entry logs: the files that hold the records of many ledgers, one behind the other.

`writer` appends and rolls, `reader` reads records at known locations: read these two first.
`scan` goes through a log from its start and `contents` condenses what it met; `resync` finds
where records go on behind damage, `torn_end` tells a log that a crash cut short.
`record_runs` gathers consecutive entries, `compaction_log` lets the output of a compaction
appear at once, `metadata_cache` is what a bookie remembers of its logs. The bytes are
`bkstore.formats.entrylog`'s.
"""

__all__ = [
    "compaction_log",
    "contents",
    "metadata_cache",
    "reader",
    "record_runs",
    "resync",
    "scan",
    "torn_end",
    "writer",
]
