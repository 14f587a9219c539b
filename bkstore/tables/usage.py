"""The tables of `bkstore usage`: what fills the disk, by what it is asked by."""

from __future__ import annotations

from bkstore.tables.table import schema

USAGE = schema(
    "usage",
    ("bookie", "string"),
    ("layout", "string"),
    ("ledgers", "int64"),
    ("live_ledgers", "int64"),
    ("entries", "int64"),
    ("entry_logs", "int64"),
    ("log_file_bytes", "int64"),
    ("record_bytes", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
    ("other_bytes", "int64"),
    ("pinned_logs", "int64"),
    ("pinned_bytes", "int64"),
    ("removable_logs", "int64"),
    ("compactable_logs", "int64"),
    ("damaged_logs", "int64"),
    ("moved_bytes", "int64"),
    ("given_back_bytes", "int64"),
    ("index_file_bytes", "int64"),
    ("index_disk_bytes", "int64"),
    ("index_row_bytes", "int64", True),
    ("journal_bytes", "int64"),
)
"""One row a bookie. Records are 4 + size; `live_bytes` and `garbage_bytes` add up to
`record_bytes`, `other_bytes` is what of the log files is no record. `given_back_bytes` is what
garbage collection would free: all of removable logs, all but `moved_bytes` of compactable ones.
`index_row_bytes` is null where a ledger's index cannot be read."""

USAGE_BY_LOG = schema(
    "usage_by_log",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("bytes", "int64"),
    ("source", "string", True),
    ("ledgers", "int64"),
    ("live_ledgers", "int64"),
    ("record_bytes", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
    ("occupancy", "float64"),
    ("pinned", "bool"),
    ("fate", "string"),
    ("given_back_bytes", "int64"),
)
"""One row an entry log. `source` is "map", "scan", or null where neither can be read; `fate` what
garbage collection would do: "keep", "compact", "remove"; "damaged" is kept for its damage."""

USAGE_BY_LEDGER = schema(
    "usage_by_ledger",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("live", "bool"),
    ("entries", "int64", True),
    ("logs", "int64"),
    ("bytes", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
    ("pinned_logs", "int64"),
)
"""One row a ledger that the index knows or a log has. `entries` is null where the index does not
know it, or cannot read it; `pinned_logs` is how many pinned logs it keeps alive."""

USAGE_BY_SCOPE = schema(
    "usage_by_scope",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledgers", "int64"),
    ("live_ledgers", "int64"),
    ("entries", "int64"),
    ("bytes", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
)
"""One row a scope."""

USAGE_BY_LOG_AND_LEDGER = schema(
    "usage_by_log_and_ledger",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("bytes", "int64"),
    ("live", "bool"),
)
"""One row a ledger of an entry log."""

USAGE_OF_INDEX = schema(
    "usage_of_index",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("part", "string"),
    ("path", "string"),
    ("files", "int64"),
    ("file_bytes", "int64"),
    ("disk_bytes", "int64"),
    ("rows", "int64", True),
    ("row_bytes", "int64", True),
    ("pages", "int64", True),
    ("table_bytes", "int64", True),
    ("estimated_rows", "int64", True),
    ("dead_rows", "int64", True),
    ("tombstones", "int64", True),
    ("range_tombstones", "int64", True),
    ("waiting", "int64", True),
)
"""One row a directory of index files ("idx") or a RocksDB database. `rows` are of known ledgers,
`row_bytes` what they are before compression; from `table_bytes` on it is what RocksDB's
properties say, `dead_rows` what stands in its tables beside rows and tombstones."""

USAGE_OF_CACHES = schema(
    "usage_of_caches",
    ("bookie", "string"),
    ("setting", "string"),
    ("purpose", "string"),
    ("value", "int64", True),
    ("unit", "string"),
    ("default", "string"),
    ("formula", "string"),
    ("source", "string"),
)
"""One row a setting and what it is to be large enough for. `source` names BookKeeper's class."""
