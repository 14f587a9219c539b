"""The tables of a dump, described in `docs/formats/dump.md`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bkstore.tables.columns import make_schema
from bkstore.tables.table import Schema

ENTRIES = make_schema(
    "entries", "bookie dir_index scope_id ledger_id entry_id log_id position length?"
)
"""One row per index entry. `length` is the record's size, null if not asked for or unknown."""

ENTRIES_WITH_MESSAGES = make_schema(
    "entries",
    "bookie dir_index scope_id ledger_id entry_id log_id position length? publish_time? messages?",
)
"""The same of a dump with Pulsar's messages (`bkstore dump --pulsar`): both are null for entries of
ledgers that are no topic's, and if they cannot be read."""

GROUPS = make_schema(
    "groups",
    "bookie scope_id ledger_id first_sequence_start last_sequence_start sequence_size"
    " sequence_period",
)
"""One row per BP-34 sequence group: a compact form of the same entries."""

LEDGERS = make_schema(
    "ledgers",
    "bookie scope_id ledger_id qualified_name entries? first_entry? last_entry? fenced? limbo?"
    " explicit_lac? master_key? layout",
)
"""One row per ledger. Values that could not be read are null, and a finding says why."""

ENTRY_LOGS = make_schema("entry_logs", "bookie dir_index log_id file bytes closed? ledgers?")
"""One row per entry log."""

LOG_LEDGERS = make_schema("log_ledgers", "bookie dir_index log_id scope_id ledger_id bytes")
"""One row per ledger of an entry log; `bytes` are 4 + size of each of its records there."""

BOOKIE_FINDINGS = make_schema(
    "findings",
    "bookie severity detail file? offset? scope_id? ledger_id? first_entry? last_entry? entries?",
)
"""Oddities and damage of many bookies (`bkstore dump`); one row per run of affected entries."""

_TABLES = (ENTRIES, GROUPS, LEDGERS, ENTRY_LOGS, LOG_LEDGERS, BOOKIE_FINDINGS)
DUMP_TABLES: Mapping[str, Schema] = MappingProxyType({each.name: each for each in _TABLES})
"""Every table of a dump by its name, in the order of the manifest."""
