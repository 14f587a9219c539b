"""The tables of a dump: what bookies have, as `docs/formats/dump.md` lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bkstore.tables.table import Schema, schema

ENTRIES = schema(
    "entries",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("length", "int64", True),
)
"""One row an index entry. `length` is the record's size, null unless asked for or unknown."""

GROUPS = schema(
    "groups",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("first_sequence_start", "int64"),
    ("last_sequence_start", "int64"),
    ("sequence_size", "int64"),
    ("sequence_period", "int64"),
)
"""One row a BP-34 sequence group: the same entries, condensed."""

LEDGERS = schema(
    "ledgers",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("fenced", "bool", True),
    ("limbo", "bool", True),
    ("explicit_lac", "binary", True),
    ("master_key", "binary", True),
    ("layout", "string"),
)
"""One row a ledger. What could not be read is null, and a finding says why."""

ENTRY_LOGS = schema(
    "entry_logs",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("bytes", "int64"),
    ("closed", "bool", True),
    ("ledgers", "int64", True),
)
"""One row an entry log: `closed` if its header says where a ledgers map is."""

LOG_LEDGERS = schema(
    "log_ledgers",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("bytes", "int64"),
)
"""One row a ledger of an entry log; `bytes` are 4 + size of each of its records there."""

BOOKIE_FINDINGS = schema(
    "findings",
    ("bookie", "string"),
    ("severity", "string"),
    ("detail", "string"),
    ("file", "string", True),
    ("offset", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("entries", "int64", True),
)
"""Oddities and damage of many bookies (`bkstore dump`); of entries, a row a run of them."""

DUMP_TABLES: Mapping[str, Schema] = MappingProxyType(
    {
        each.name: each
        for each in (ENTRIES, GROUPS, LEDGERS, ENTRY_LOGS, LOG_LEDGERS, BOOKIE_FINDINGS)
    }
)
"""Every table of a dump by its name, in the order in which a manifest has them."""
