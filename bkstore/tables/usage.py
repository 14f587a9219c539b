"""The tables of `bkstore usage`, one for each value of --by."""

from __future__ import annotations

from bkstore.tables.columns import make_schema

USAGE = make_schema(
    "usage",
    "bookie layout ledgers live_ledgers entries entry_logs log_file_bytes record_bytes live_bytes"
    " garbage_bytes other_bytes pinned_logs pinned_bytes removable_logs compactable_logs"
    " damaged_logs moved_bytes given_back_bytes index_file_bytes index_disk_bytes index_row_bytes?"
    " journal_bytes",
    show="bookie layout ledgers entries entry_logs log_file_bytes live_bytes garbage_bytes"
    " given_back_bytes index_disk_bytes journal_bytes",
    drop_first="layout entry_logs ledgers journal_bytes index_disk_bytes entries",
    may_cut="bookie",
)
"""One row per bookie. `live_bytes` and `garbage_bytes` add up to `record_bytes`; `given_back_bytes`
are all of removable logs, and all but `moved_bytes` of compactable ones. `index_row_bytes` is null
where a ledger's index cannot be read."""

USAGE_BY_LOG = make_schema(
    "usage_by_log",
    "bookie dir_index log_id file bytes source? ledgers live_ledgers record_bytes live_bytes"
    " garbage_bytes occupancy pinned fate given_back_bytes",
    hide="file source record_bytes",
    caption="bookie",
    hide_idle="pinned",
    drop_first="ledgers live_ledgers bytes",
)
"""One row per entry log. `source` is "map", "scan", or null if neither can be read."""

USAGE_BY_LEDGER = make_schema(
    "usage_by_ledger",
    "bookie scope_id ledger_id qualified_name live entries? logs bytes live_bytes garbage_bytes"
    " pinned_logs",
    caption="bookie",
    hide_idle="pinned_logs",
    drop_first="live_bytes logs",
)
"""One row per ledger in the index or in a log. `entries` is null if the index does not have the
ledger or cannot be read; `pinned_logs` is the number of pinned logs that it keeps alive."""

USAGE_BY_OWNER = make_schema(
    "usage_by_owner",
    "owner? application? ledgers entries replicas bookies bytes live_bytes garbage_bytes logs"
    " pinned_logs pinned_bytes freed_bytes removable_bytes",
    hide="application bookies live_bytes pinned_bytes",
    hide_idle="pinned_logs garbage_bytes",
    drop_first="bookies entries logs pinned_logs removable_bytes replicas ledgers garbage_bytes",
    nothing="",
)
"""One row per topic, namespace, tenant or component, the most bytes first: `owner` is its name, the
application where the metadata state no other, null if they state nothing or lack the ledgers.
`entries` are those of closed ledgers by the metadata. `freed_bytes` are freed if all of the owner's
ledgers are deleted, beside what garbage collection frees anyway; `removable_bytes` of them without
compaction."""

USAGE_BY_SCOPE = make_schema(
    "usage_by_scope", "bookie scope_id ledgers live_ledgers entries bytes live_bytes garbage_bytes"
)
"""One row per scope."""

USAGE_BY_LOG_AND_LEDGER = make_schema(
    "usage_by_log_and_ledger",
    "bookie dir_index log_id scope_id ledger_id bytes live",
    show="bookie dir_index log_id ledger_id live bytes",
    caption="bookie",
)
"""One row per ledger of an entry log."""

USAGE_OF_INDEX = make_schema(
    "usage_of_index",
    "bookie dir_index part path files file_bytes disk_bytes rows? row_bytes? pages? table_bytes?"
    " estimated_rows? dead_rows? tombstones? range_tombstones? waiting?",
    hide="path pages estimated_rows range_tombstones",
    caption="bookie",
    hide_idle="table_bytes dead_rows tombstones",
    drop_first="files disk_bytes",
)
"""One row per directory of index files ("idx") or RocksDB database. `rows` are of known ledgers,
`row_bytes` their uncompressed size; the columns from `table_bytes` on are RocksDB's properties."""

USAGE_OF_CACHES = make_schema(
    "usage_of_caches",
    "bookie setting purpose value? unit default formula source",
    show="bookie setting value unit default purpose",
    caption="bookie",
    drop_first="default",
    wrap="purpose",
)
"""One row per setting and purpose, which requires `value`; `source` is BookKeeper's class."""
