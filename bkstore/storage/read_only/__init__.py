"""Read-only access to the directories of a bookie that is not running.

`bookie_dir` has `BookieDir` and `open_index`: read it first. `rocks_directories` opens RocksDB
indexes in the configured order, `records` reads stored records through the index, `find_logs` finds
entries in logs without the index, `ledgers_table` makes a table of the ledgers, and
`locations_past_end` finds index rows that point past the end of their entry log.
"""

__all__: list[str] = []
