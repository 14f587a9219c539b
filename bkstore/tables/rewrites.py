"""The tables of rewritten directories: what was made, and what could not be saved."""

from __future__ import annotations

from bkstore.tables.table import schema

REWRITES = schema(
    "rewrites",
    ("source", "string"),
    ("target", "string"),
    ("layout_before", "string"),
    ("layout", "string"),
    ("directories", "int32"),
    ("ledgers", "int64"),
    ("entries", "int64"),
    ("duplicates", "int64"),
    ("left_out", "int64"),
    ("entry_logs", "int64"),
    ("log_bytes", "int64"),
    ("linked", "bool"),
    ("renamed_logs", "int64"),
    ("second_names", "int64"),
    ("other_files", "int64"),
    ("compared", "bool"),
)
"""One row: what a rewrite made (`bkstore convert`, `bkstore rebuild-index`).

`compared` says that each row and state was read back and is as it was to be. `duplicates` are
further copies of entries in the logs. `left_out` counts rows of ledgers that the index does not
know (convert), or ledgers in the logs that the bookie does not know (rebuild-index). `linked`: the
entry logs are hard links. `renamed_logs` have other ids than in the source, `second_names` are
links of logs in further directories.
"""

LOSSES = schema(
    "losses",
    ("kind", "string"),
    ("file", "string"),
    ("offset", "int64"),
    ("bytes", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("entries", "int64", True),
    ("detail", "string"),
)
"""One row a loss (`bkstore salvage`).

kind "bytes": so many `bytes` of `file`, from `offset` on, hold nothing that can be read. kind
"entries": entries of a ledger that the old index knew and no log has; `file` and `offset` say where
the first of them lay.
"""
