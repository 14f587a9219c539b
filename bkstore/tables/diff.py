"""The table of `bkstore diff`: what two bookies do not have alike."""

from __future__ import annotations

from bkstore.tables.table import schema

DIFFERENCES = schema(
    "differences",
    ("kind", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("only_in", "string", True),
    ("a", "string", True),
    ("b", "string", True),
    ("entries", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("ranges", "rows", True),
    ("groups", "rows", True),
)
"""One row a difference (`bkstore diff`).

`kind` is "ledger" (only side `only_in`, "a" or "b", knows it), "entries" (only that side has
these), or the part of the state that differs: "fenced", "limbo", "explicit_lac", "master_key".
`a` and `b` say what each side has of that; of a master key nothing is told. `ranges` are null
above 10,000; `groups` say the same entries, as (first, last, size, period).
"""
