"""Entry logs: the files that hold the records of many ledgers, one behind the other.

`writer` appends, rolls and hands out locations, `reader` reads records at known locations: read
these two first. `open_log` is one log that is being written. `scan` goes through a log from its
start, `contents` condenses what it met, and `log_account` says what each byte is for.
`resync` finds where records go on behind damage, `torn_end` tells a log that a crash cut short.
`record_runs` reads consecutive entries together, `compaction_log` lets the output of a compaction
appear at once (the compaction itself is `storage.ledgers.garbage_collection`'s), `metadata_cache`
is what a bookie remembers of its logs. The bytes are `bkstore.formats.entrylog`'s.
"""

__all__ = [
    "compaction_log",
    "contents",
    "log_account",
    "metadata_cache",
    "open_log",
    "reader",
    "record_runs",
    "resync",
    "scan",
    "torn_end",
    "writer",
]
