"""The declared schemas of every table that leaves the library, and their Arrow export.

A `Table` is a schema and equally long columns: int64 numpy arrays, or lists where a column is
text, bytes, boolean or nullable. Rows come out as tuples without any extra package; with pyarrow
as Arrow, which pandas, Polars, DuckDB and Spark read through `__arrow_c_stream__`. Ids and entry
numbers are int64; ids above 2^63-1 appear in two's complement, and `qualified_name` beside them
says the id as text.

`table` has `Table` and the schema under it: read it first. `dump` declares the tables that a dump
has (entries, groups, ledgers, entry logs), `analyses` those of audits and analyses (violations,
holes, health), `commands` what only single commands print; `safe_text` makes text from outside
fit to be shown.
"""

from __future__ import annotations

from bkstore.tables.analyses import (
    BOOKIE_BYTES,
    COMPARISON,
    FRAGMENTATION,
    HEALTH,
    HOLES,
    HOMELESS,
    LEDGER_BYTES,
    LOG_OCCUPANCY,
    ORPHANS,
    SCOPE_BYTES,
    SEQUENCES,
    SURPLUS,
    VIOLATIONS,
)
from bkstore.tables.commands import (
    ANSWERS,
    AVAILABILITY,
    BOOKIE_FILES,
    ENTRY_RECORDS,
    FINDINGS,
    INSPECT,
    JOURNAL_RECORDS,
    LAST_MARKS,
    LEDGER_LIST,
    LOCATIONS,
    LOG_ENTRIES,
    LOG_METADATA,
    LOG_RECORDS,
    LOOKUPS,
)
from bkstore.tables.dump import BOOKIE_FINDINGS, ENTRIES, ENTRY_LOGS, GROUPS, LEDGERS, LOG_LEDGERS
from bkstore.tables.table import (
    Column,
    Repeated,
    Schema,
    Table,
    require_pyarrow,
)

__all__ = [
    "ANSWERS",
    "AVAILABILITY",
    "BOOKIE_BYTES",
    "BOOKIE_FILES",
    "BOOKIE_FINDINGS",
    "COMPARISON",
    "ENTRIES",
    "ENTRY_LOGS",
    "ENTRY_RECORDS",
    "FINDINGS",
    "FRAGMENTATION",
    "GROUPS",
    "HEALTH",
    "HOLES",
    "HOMELESS",
    "INSPECT",
    "JOURNAL_RECORDS",
    "LAST_MARKS",
    "LEDGERS",
    "LEDGER_BYTES",
    "LEDGER_LIST",
    "LOCATIONS",
    "LOG_ENTRIES",
    "LOG_LEDGERS",
    "LOG_METADATA",
    "LOG_OCCUPANCY",
    "LOG_RECORDS",
    "LOOKUPS",
    "ORPHANS",
    "SCOPE_BYTES",
    "SEQUENCES",
    "SURPLUS",
    "VIOLATIONS",
    "Column",
    "Repeated",
    "Schema",
    "Table",
    "require_pyarrow",
]
