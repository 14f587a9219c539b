"""The tables of a dump: what bookies have, as `docs/formats/dump.md` lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bkstore.tables.columns import schema
from bkstore.tables.table import Schema

ENTRIES = schema("entries", "bookie dir_index scope_id ledger_id entry_id log_id position length?")
"""One row an index entry. `length` is the record's size, null unless asked for or unknown."""

GROUPS = schema(
    "groups",
    "bookie scope_id ledger_id first_sequence_start last_sequence_start sequence_size"
    " sequence_period",
)
"""One row a BP-34 sequence group: the same entries, condensed."""

LEDGERS = schema(
    "ledgers",
    "bookie scope_id ledger_id qualified_name entries? first_entry? last_entry? fenced? limbo?"
    " explicit_lac? master_key? layout",
)
"""One row a ledger. What could not be read is null, and a finding says why."""

ENTRY_LOGS = schema("entry_logs", "bookie dir_index log_id file bytes closed? ledgers?")
"""One row an entry log."""

LOG_LEDGERS = schema("log_ledgers", "bookie dir_index log_id scope_id ledger_id bytes")
"""One row a ledger of an entry log; `bytes` are 4 + size of each of its records there."""

BOOKIE_FINDINGS = schema(
    "findings",
    "bookie severity detail file? offset? scope_id? ledger_id? first_entry? last_entry? entries?",
)
"""Oddities and damage of many bookies (`bkstore dump`); of entries, a row a run of them."""

DUMP_TABLES: Mapping[str, Schema] = MappingProxyType(
    {
        each.name: each
        for each in (ENTRIES, GROUPS, LEDGERS, ENTRY_LOGS, LOG_LEDGERS, BOOKIE_FINDINGS)
    }
)
"""Every table of a dump by its name, in the order in which a manifest has them."""
