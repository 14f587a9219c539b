"""The tables of `bkstore check`: what was found, and what was looked at."""

from __future__ import annotations

from bkstore.tables.table import schema

CHECK_FINDINGS = schema(
    "check_findings",
    ("severity", "string"),
    ("kind", "string"),
    ("detail", "string"),
    ("file", "string", True),
    ("offset", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("entries", "int64", True),
)
"""One row a finding. `severity` is "damage", "oddity" or "note"; `entries` says how many of
first..last a run is about."""

CHECK_COVERAGE = schema(
    "check_coverage",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("bytes", "int64"),
    ("header_bytes", "int64"),
    ("record_bytes", "int64"),
    ("map_bytes", "int64"),
    ("padding_bytes", "int64"),
    ("unaccounted_bytes", "int64"),
    ("unaccounted", "rows"),
    ("rows", "int64"),
    ("records", "int64"),
    ("indexed", "int64"),
    ("copies", "int64"),
    ("unindexed", "int64"),
    ("garbage", "int64"),
    ("garbage_bytes", "int64"),
    ("others", "int64"),
    ("unjudged", "int64"),
    ("digests", "int64"),
)
"""One row an entry log (`bkstore check --coverage`).

The bytes by what they are for add up to `bytes`; `unaccounted` has the [start, end] of those that
are nothing known. `rows` index rows point into the log. Of its `records`, `indexed` are where a
row points, `copies` are of entries whose row points elsewhere, `unindexed` in no row of a ledger
that is known, `garbage` of ledgers that are not, `others` of ledgers that were not asked for;
`unjudged` could not be looked up. `digests`
were verified.
"""
