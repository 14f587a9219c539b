"""The declared schemas of every table that the library returns, and their Arrow export.

A `Table` is a schema and columns of equal length: int64 numpy arrays, or lists for text, bytes,
booleans and nullable columns. Rows are tuples and need no extra package; with pyarrow, tables
convert to Arrow, which pandas, Polars, DuckDB and Spark read through `__arrow_c_stream__`. Ids and
entry numbers are int64; ids above 2^63-1 appear in two's complement, and the column
`qualified_name` has the id as text.

`table` has `Table` and its schema: read it first. `columns` describes every column once. `dump`
declares the tables of a dump, `analyses` those of audits and analyses, `usage` those of disk usage,
`commands` those of other commands; `safe_text` escapes text from outside for display.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_exports import exported_names, lazy_names

if TYPE_CHECKING:
    from bkstore.tables.analyses import (
        BOOKIE_BYTES,
        COMPARISON,
        FRAGMENTATION,
        HEALTH,
        HOLES,
        HOMELESS,
        LEAKED_LEDGERS,
        LEDGER_BYTES,
        LOG_OCCUPANCY,
        ORPHANS,
        OWNER_BYTES,
        OWNER_VIOLATIONS,
        SCOPE_BYTES,
        SEQUENCES,
        SURPLUS,
        VIOLATIONS,
    )
    from bkstore.tables.commands import (
        AVAILABILITY,
        BOOKIE_FILES,
        CHECK_COVERAGE,
        CHECK_FINDINGS,
        DIFFERENCES,
        ENSEMBLE_BOOKIES,
        ENTRY_RECORDS,
        FINDINGS,
        INSPECT,
        JOURNAL_RECORDS,
        LAST_MARKS,
        LEAKS,
        LEDGER_LIST,
        LOCATIONS,
        LOG_ENTRIES,
        LOG_METADATA,
        LOG_RECORDS,
        LOOKUP_OBJECTS,
        LOOKUPS,
        LOSSES,
        METADATA_LEDGERS,
        METADATA_SEGMENTS,
        PULSAR_ENTRIES,
        REPAIRS,
        RESCUE,
        RESCUED_ENTRIES,
        REWRITES,
        ROCKS_FILES,
        ROCKS_PROPERTIES,
        ROCKS_ROWS,
    )
    from bkstore.tables.dump import (
        BOOKIE_FINDINGS,
        ENTRIES,
        ENTRIES_WITH_MESSAGES,
        ENTRY_LOGS,
        GROUPS,
        LEDGERS,
        LOG_LEDGERS,
    )
    from bkstore.tables.table import Column, ConstantColumn, Schema, Table, require_pyarrow
    from bkstore.tables.usage import (
        USAGE,
        USAGE_BY_LEDGER,
        USAGE_BY_LOG,
        USAGE_BY_LOG_AND_LEDGER,
        USAGE_BY_OWNER,
        USAGE_BY_SCOPE,
        USAGE_OF_CACHES,
        USAGE_OF_INDEX,
    )

__all__ = [
    "AVAILABILITY",
    "BOOKIE_BYTES",
    "BOOKIE_FILES",
    "BOOKIE_FINDINGS",
    "CHECK_COVERAGE",
    "CHECK_FINDINGS",
    "COMPARISON",
    "DIFFERENCES",
    "ENSEMBLE_BOOKIES",
    "ENTRIES",
    "ENTRIES_WITH_MESSAGES",
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
    "LEAKED_LEDGERS",
    "LEAKS",
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
    "LOOKUP_OBJECTS",
    "LOSSES",
    "METADATA_LEDGERS",
    "METADATA_SEGMENTS",
    "ORPHANS",
    "OWNER_BYTES",
    "OWNER_VIOLATIONS",
    "PULSAR_ENTRIES",
    "REPAIRS",
    "RESCUE",
    "RESCUED_ENTRIES",
    "REWRITES",
    "ROCKS_FILES",
    "ROCKS_PROPERTIES",
    "ROCKS_ROWS",
    "SCOPE_BYTES",
    "SEQUENCES",
    "SURPLUS",
    "USAGE",
    "USAGE_BY_LEDGER",
    "USAGE_BY_LOG",
    "USAGE_BY_LOG_AND_LEDGER",
    "USAGE_BY_OWNER",
    "USAGE_BY_SCOPE",
    "USAGE_OF_CACHES",
    "USAGE_OF_INDEX",
    "VIOLATIONS",
    "Column",
    "ConstantColumn",
    "Schema",
    "Table",
    "require_pyarrow",
]

_NAMES = {
    "analyses": (
        "BOOKIE_BYTES COMPARISON FRAGMENTATION HEALTH HOLES HOMELESS LEAKED_LEDGERS "
        "LEDGER_BYTES LOG_OCCUPANCY ORPHANS OWNER_BYTES OWNER_VIOLATIONS SCOPE_BYTES "
        "SEQUENCES SURPLUS VIOLATIONS"
    ),
    "commands": (
        "AVAILABILITY BOOKIE_FILES CHECK_COVERAGE CHECK_FINDINGS DIFFERENCES ENSEMBLE_BOOKIES "
        "ENTRY_RECORDS FINDINGS INSPECT JOURNAL_RECORDS LAST_MARKS LEAKS LEDGER_LIST LOCATIONS "
        "LOG_ENTRIES LOG_METADATA LOG_RECORDS LOOKUPS LOOKUP_OBJECTS LOSSES METADATA_LEDGERS "
        "METADATA_SEGMENTS PULSAR_ENTRIES REPAIRS RESCUE RESCUED_ENTRIES REWRITES "
        "ROCKS_FILES ROCKS_PROPERTIES ROCKS_ROWS"
    ),
    "dump": "BOOKIE_FINDINGS ENTRIES ENTRIES_WITH_MESSAGES ENTRY_LOGS GROUPS LEDGERS LOG_LEDGERS",
    "table": "Column ConstantColumn Schema Table require_pyarrow",
    "usage": (
        "USAGE USAGE_BY_LEDGER USAGE_BY_LOG USAGE_BY_LOG_AND_LEDGER USAGE_BY_OWNER USAGE_BY_SCOPE "
        "USAGE_OF_CACHES USAGE_OF_INDEX"
    ),
}
"""The public names by their module."""

__getattr__ = lazy_names(
    __name__,
    {name: f"{__name__}.{module}" for module in _NAMES for name in _NAMES[module].split()}
    | {
        "Repeated": "bkstore.tables.table:ConstantColumn",
        "ANSWERS": "bkstore.tables.commands:LOOKUP_OBJECTS",
    },
    submodules=("columns", "safe_text", *_NAMES),
)
__dir__ = exported_names(__name__)
