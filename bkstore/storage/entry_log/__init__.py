"""Entry logs: files with the records of many ledgers, one after the other.

`writer` appends, rolls and returns locations, `reader` reads records at known locations: read these
two first. `open_log` is one log that is being written. `scan` reads a log from its start,
`contents` condenses the entries found, and `byte_usage` counts what each byte is used for.
`resynchronization` finds the next record after damage, `torn_end` detects a log that a crash cut
short. `record_runs` reads consecutive entries together. `compaction_log` publishes the output of a
compaction atomically (`storage.ledgers.compaction` compacts). `metadata_cache` reads a
bookie's cache of log metadata. The format is in `bkstore.formats.entrylog`.
"""

__all__: list[str] = []
