"""The directories of a bookie that does not run, read and never written to.

`bookie_dir` has `BookieDir` and `open_index`: read it first. `rocks_directories` opens RocksDB
indexes in the configured order, `records` reads stored records by the index, `find_logs` answers
without it, `ledgers_table` makes rows of the ledgers, and `locations_past_end` asks whether the
entry logs reach as far as the index points.
"""

__all__ = [
    "bookie_dir",
    "find_logs",
    "ledgers_table",
    "locations_past_end",
    "records",
    "rocks_directories",
]
