"""The tables of audits and of analyses of a dump.

Ids are int64 in two's complement; sorting by `qualified_name` as text sorts by id. "Replicas" are
entries counted once for each bookie that should hold them.
"""

from __future__ import annotations

from bkstore.tables.columns import make_schema
from bkstore.tables.commands import OWNERS

VIOLATIONS = make_schema(
    "violations",
    "category scope_id? ledger_id? qualified_name? first_entry? bookie? missing_entries?"
    " first_missing? last_missing? missing? missing_groups? detail",
    hide="first_missing last_missing missing_groups",
    hide_idle="ledger_id first_entry missing_entries missing",
    drop_first="missing_entries",
    may_cut="missing",
    wrap="detail",
    nothing="",
)
"""The violations that an audit found. `missing` is null if there are too many ranges to list;
`missing_groups` (first, last, size, period) hold the same entries in BP-34's form. All columns of
missing entries are null if a bookie gave no answer, and the ledger too if it gave none about any
ledger."""

SEQUENCES = make_schema(
    "sequences",
    "bookie scope_id ledger_id qualified_name entries first_entry last_entry sequences groups"
    " availability",
    hide="availability",
    caption="bookie",
)
"""One row per bookie and ledger; `availability` encodes the `entries`."""

HOLES = make_schema(
    "holes",
    "bookie scope_id ledger_id qualified_name first_entry last_entry entries stripe holes"
    " off_stripe",
    show="bookie ledger_id entries first_entry last_entry stripe holes off_stripe",
    caption="bookie",
)
"""Ledgers with missing entries between the first and the last on a bookie, judged without metadata
by the ledger's own stripe; entries off the stripe do not fill a hole."""

HEALTH = make_schema(
    "ledger_health",
    "scope_id ledger_id qualified_name state ensemble_size write_quorum_size ack_quorum_size"
    " segments last_entry_id replicas_due? replicas_missing? replicas_surplus? fewest_replicas?"
    " lost_entries? category? not_judged?",
    show="ledger_id state replicas_due replicas_missing fewest_replicas lost_entries category"
    " not_judged",
    hide_idle="lost_entries category not_judged",
    drop_first="state replicas_due",
    may_cut="not_judged",
)
"""One row per ledger of the metadata. Replica counts are of bookies in the dump, null if the ledger
is not judged. `not_judged` says why (such as open), or which bookies are not in the dump."""

SURPLUS = make_schema(
    "surplus",
    "bookie scope_id ledger_id qualified_name surplus_entries surplus_groups",
    caption="bookie",
    may_cut="surplus_groups",
)
"""Over-replication: entries of a closed ledger on bookies that do not have to hold them."""

ORPHANS = make_schema("orphans", "bookie scope_id ledger_id qualified_name entries? bytes")
"""Ledgers that a bookie has and the metadata do not: garbage collection would delete them."""

HOMELESS = make_schema(
    "homeless",
    "scope_id ledger_id qualified_name state last_entry_id bookies:string",
    may_cut="bookies",
)
"""Ledgers of the metadata without an entry on any bookie of the dump, although some are due there;
`bookies` are those of the ledger's ensembles, separated by spaces."""

LOG_OCCUPANCY = make_schema(
    "log_occupancy",
    "bookie dir_index log_id file bytes closed? ledgers live_ledgers live_bytes garbage_bytes"
    " occupancy pinned",
    hide="file closed",
    caption="bookie",
    drop_first="ledgers live_ledgers bytes",
)
"""One row per entry log. Live records are those of ledgers in the bookie's index or, with metadata,
in the metadata; the threshold of `pinned` is the one that was asked for."""

LEDGER_BYTES = make_schema(
    "bytes_by_ledger", "scope_id ledger_id qualified_name bookies replicas bytes"
)
"""One row per ledger; `bytes` are those of its records in the bookies' entry logs."""

OWNER_BYTES = make_schema(
    "bytes_by_owner",
    "owner? application? ledgers entries bookies replicas bytes live_bytes garbage_bytes logs"
    " pinned_logs pinned_bytes",
    hide="application bookies live_bytes logs pinned_bytes",
    hide_idle="pinned_logs",
    drop_first="entries ledgers replicas garbage_bytes",
)
"""One row per topic, namespace, tenant or component, the largest first; `owner` is its name, the
application where the metadata state no other, null if nothing is stated or the ledgers are not in
the metadata. `entries` are those of closed ledgers. Live records are those of ledgers in the
metadata, and the logs those that have live records of the owner."""

OWNER_VIOLATIONS = make_schema(
    "violations_by_owner",
    "owner? application? ledgers no_replica below_ack_quorum below_write_quorum lost_entries"
    " replicas_missing replicas_due",
    hide="application replicas_due",
    drop_first="below_write_quorum below_ack_quorum no_replica ledgers",
    nothing="no ledger lacks replicas",
)
"""One row per owner, as in `bytes_by_owner`, of ledgers that lack replicas, the most lost entries
first. The columns named as categories count the ledgers of each."""

LEAKED_LEDGERS = make_schema(
    "leaked_ledgers",
    f"class scope_id ledger_id qualified_name owner? {OWNERS} managed_ledger? state? ctime? length?"
    " version? bookies bytes removable_bytes detail? caution?",
    show="class ledger_id owner component length bookies bytes removable_bytes detail caution",
    hide_idle="component length detail caution",
    drop_first="component length bookies detail",
    may_cut="caution detail",
    wrap="owner",
    nothing="no ledger is leaked, dangling or of unknown owner",
)
"""One row per ledger that is not as Pulsar's metadata say it should be, the worst class first, as
in `leaks`; in a class the largest first. `bytes` are those of its records on the `bookies`;
`removable_bytes` of them are freed without compaction when all leaks are deleted."""

SCOPE_BYTES = make_schema("bytes_by_scope", "scope_id ledgers replicas bytes")
"""One row per scope; `bytes` are those of its records in the bookies' entry logs."""

BOOKIE_BYTES = make_schema(
    "bytes_by_bookie",
    "bookie ledgers entries entry_logs log_file_bytes record_bytes live_bytes garbage_bytes damage",
    hide="entry_logs record_bytes",
    hide_idle="damage",
    drop_first="ledgers",
)
"""One row per bookie."""

FRAGMENTATION = make_schema(
    "fragmentation",
    "bookie scope_id ledger_id qualified_name entries logs log_changes stretches mean_stretch",
    caption="bookie",
)
"""How scattered the entries of a ledger are, visited in order of entry id."""

COMPARISON = make_schema(
    "comparison",
    "bookie scope_id ledger_id qualified_name before after common added removed change",
    caption="bookie",
)
"""The entries of each ledger on each bookie in two dumps."""
