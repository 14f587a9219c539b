"""The tables of audits and analyses: what becomes of a dump when it is asked something.

Ids are int64 in two's complement; where there is a `qualified_name`, its text order is the id
order. "Replicas" are entries counted once for each bookie that should hold them.
"""

from __future__ import annotations

from bkstore.tables.columns import schema

VIOLATIONS = schema(
    "violations",
    "category scope_id? ledger_id? qualified_name? first_entry? bookie? missing_entries? missing?"
    " missing_groups? detail",
    hide="missing_groups",
    drop="missing_entries",
    cut="missing detail",
)
"""What an audit found. `missing` is null where there are too many ranges to list; `missing_groups`
(first, last, size, period) say the same in BP-34's form, whatever the number.
All three are null where a bookie gave no answer; the ledger is where it gives none about any."""

SEQUENCES = schema(
    "sequences",
    "bookie scope_id ledger_id qualified_name entries first_entry last_entry sequences groups"
    " availability",
    hide="availability",
    once="bookie",
)
"""One row a bookie and ledger; `availability` is made from `entries`."""

HOLES = schema(
    "holes",
    "bookie scope_id ledger_id qualified_name first_entry last_entry entries stripe holes"
    " off_stripe",
    show="bookie ledger_id entries first_entry last_entry stripe holes off_stripe",
    once="bookie",
)
"""Ledgers of which a bookie lacks entries between its first and its last, judged without metadata
by the ledger's own stripe; entries off the stripe fill no hole."""

HEALTH = schema(
    "ledger_health",
    "scope_id ledger_id qualified_name state ensemble_size write_quorum_size ack_quorum_size"
    " segments last_entry_id replicas_due? replicas_missing? replicas_surplus? fewest_replicas?"
    " category? not_judged?",
    show="ledger_id state replicas_due replicas_missing fewest_replicas category not_judged",
    quiet="category not_judged",
    drop="state replicas_due",
    cut="not_judged",
)
"""One row a ledger of the metadata. Replica counts are of bookies in the dump; null where the
ledger is not judged. `not_judged` says why (open, say), or which bookies are not in the dump."""

SURPLUS = schema(
    "surplus",
    "bookie scope_id ledger_id qualified_name surplus_entries surplus_groups",
    once="bookie",
    cut="surplus_groups",
)
"""Over-replication: entries of a closed ledger that a bookie holds and does not have to."""

ORPHANS = schema("orphans", "bookie scope_id ledger_id qualified_name entries? bytes")
"""Ledgers that a bookie has and the metadata do not: garbage collection would delete them."""

HOMELESS = schema(
    "homeless",
    "scope_id ledger_id qualified_name state last_entry_id bookies:string",
    cut="bookies",
)
"""Ledgers of the metadata of which no bookie of the dump has an entry, though some are due;
`bookies` are those of its ensembles, separated by spaces."""

LOG_OCCUPANCY = schema(
    "log_occupancy",
    "bookie dir_index log_id file bytes closed? ledgers live_ledgers live_bytes garbage_bytes"
    " occupancy pinned",
    hide="file closed",
    once="bookie",
    drop="ledgers live_ledgers bytes",
)
"""One row an entry log. Live are the records of ledgers that the bookie's index (or, with
metadata, the metadata) knows; the threshold of `pinned` is the one asked for."""

LEDGER_BYTES = schema("bytes_by_ledger", "scope_id ledger_id qualified_name bookies replicas bytes")
"""One row a ledger; `bytes` are those of its records in the bookies' entry logs."""

SCOPE_BYTES = schema("bytes_by_scope", "scope_id ledgers replicas bytes")
"""The same by scope."""

BOOKIE_BYTES = schema(
    "bytes_by_bookie",
    "bookie ledgers entries entry_logs log_file_bytes record_bytes live_bytes garbage_bytes damage",
    hide="entry_logs record_bytes",
    quiet="damage",
    drop="ledgers",
)
"""One row a bookie."""

FRAGMENTATION = schema(
    "fragmentation",
    "bookie scope_id ledger_id qualified_name entries logs log_changes stretches mean_stretch",
    once="bookie",
)
"""How scattered a ledger is; its entries are taken in their order."""

COMPARISON = schema(
    "comparison",
    "bookie scope_id ledger_id qualified_name before after common added removed change",
    once="bookie",
)
"""Two dumps side by side: the entries of a ledger on a bookie."""
