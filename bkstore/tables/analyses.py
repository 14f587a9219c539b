"""The tables of audits and analyses: what becomes of a dump when it is asked something.

Ids are int64 in two's complement; where there is a `qualified_name`, its text order is the id
order. "Replicas" are entries counted once for each bookie that should hold them.
"""

from __future__ import annotations

from bkstore.tables.table import schema

VIOLATIONS = schema(
    "violations",
    ("category", "string"),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("qualified_name", "string", True),
    ("first_entry", "int64", True),
    ("bookie", "string", True),
    ("missing_entries", "int64", True),
    ("missing", "rows", True),
    ("missing_groups", "rows", True),
    ("detail", "string"),
)
"""What an audit found. `missing` are inclusive ranges, null where there are too many to list;
`missing_groups` (first, last, size, period) say the same in BP-34's form, whatever the number.
All three are null where a bookie gave no answer; the ledger is where it gives none about any."""

SEQUENCES = schema(
    "sequences",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64"),
    ("first_entry", "int64"),
    ("last_entry", "int64"),
    ("sequences", "int64"),
    ("groups", "int64"),
    ("availability", "binary"),
)
"""One row a bookie and ledger; `availability` is BP-34's grouped encoding, made from `entries`."""

HOLES = schema(
    "holes",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("first_entry", "int64"),
    ("last_entry", "int64"),
    ("entries", "int64"),
    ("stripe", "string"),
    ("holes", "int64"),
    ("off_stripe", "int64"),
)
"""Ledgers of which a bookie lacks entries between its first and its last, judged without metadata
by the ledger's own stripe ("all", or "size of period"); entries off the stripe fill no hole."""

HEALTH = schema(
    "ledger_health",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("state", "string"),
    ("ensemble_size", "int64"),
    ("write_quorum_size", "int64"),
    ("ack_quorum_size", "int64"),
    ("segments", "int64"),
    ("last_entry_id", "int64"),
    ("replicas_due", "int64", True),
    ("replicas_missing", "int64", True),
    ("replicas_surplus", "int64", True),
    ("fewest_replicas", "int64", True),
    ("category", "string", True),
    ("not_judged", "string", True),
)
"""One row a ledger of the metadata. Replica counts are of bookies in the dump; null where the
ledger is not judged. `not_judged` says why (open, say), or which bookies are not in the dump."""

SURPLUS = schema(
    "surplus",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("surplus_entries", "int64"),
    ("surplus_groups", "rows"),
)
"""Over-replication: entries of a closed ledger that a bookie holds and does not have to."""

ORPHANS = schema(
    "orphans",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64", True),
    ("bytes", "int64"),
)
"""Ledgers that a bookie has and the metadata do not: garbage collection would delete them."""

HOMELESS = schema(
    "homeless",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("state", "string"),
    ("last_entry_id", "int64"),
    ("bookies", "string"),
)
"""Ledgers of the metadata of which no bookie of the dump has an entry, though some are due;
`bookies` are those of its ensembles, separated by spaces."""

LOG_OCCUPANCY = schema(
    "log_occupancy",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("bytes", "int64"),
    ("closed", "bool", True),
    ("ledgers", "int64"),
    ("live_ledgers", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
    ("occupancy", "float64"),
    ("pinned", "bool"),
)
"""One row an entry log. Live are the records of ledgers that the bookie's index (or, with
metadata, the metadata) knows; `occupancy` is their part of all records' bytes, 0 for none;
`pinned`: something lives in it, but little (below the threshold asked for)."""

LEDGER_BYTES = schema(
    "bytes_by_ledger",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("bookies", "int64"),
    ("replicas", "int64"),
    ("bytes", "int64"),
)
"""One row a ledger: on how many bookies, entries summed over them, bytes in their entry logs."""

SCOPE_BYTES = schema(
    "bytes_by_scope",
    ("scope_id", "int64"),
    ("ledgers", "int64"),
    ("replicas", "int64"),
    ("bytes", "int64"),
)
"""The same by scope."""

BOOKIE_BYTES = schema(
    "bytes_by_bookie",
    ("bookie", "string"),
    ("ledgers", "int64"),
    ("entries", "int64"),
    ("entry_logs", "int64"),
    ("log_file_bytes", "int64"),
    ("record_bytes", "int64"),
    ("live_bytes", "int64"),
    ("garbage_bytes", "int64"),
    ("damage", "int64"),
)
"""One row a bookie; `damage` counts its findings of that severity."""

FRAGMENTATION = schema(
    "fragmentation",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64"),
    ("logs", "int64"),
    ("log_changes", "int64"),
    ("stretches", "int64"),
    ("mean_stretch", "float64"),
)
"""How scattered a ledger is: entry logs, changes of log in entry order, stretches of entries that
lie in one log with rising positions, and entries a stretch."""

COMPARISON = schema(
    "comparison",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("before", "int64"),
    ("after", "int64"),
    ("common", "int64"),
    ("added", "int64"),
    ("removed", "int64"),
    ("change", "string"),
)
"""Two dumps side by side: entries of each, in both (duplicates), in the second or the first only;
`change` is new, gone, grown, shrunk, changed or same."""
