"""The declared schemas of every table that leaves the library, and their Arrow export.

A `Table` is a schema and equally long columns: int64 numpy arrays, or lists where a column is
text, bytes, boolean or nullable. Rows come out as tuples without any extra package; with pyarrow
as Arrow, which pandas, Polars, DuckDB and Spark read through `__arrow_c_stream__`. Ids and entry
numbers are int64; ids above 2^63-1 appear in two's complement, and `qualified_name` beside them
says the id as text.

`table` has `Table` and the schema under it: read it first. `dump` declares the tables that a dump
has (entries, groups, ledgers, entry logs), `analyses` those of audits and analyses (violations,
holes, health), `commands` what only single commands print, `check` what a check answers, `usage`
what fills a disk, `diff` what two bookies do not have alike, `rewrites` what a new directory is
made of; `safe_text` makes text from outside fit to be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.lazy_faces import lazy_names, names_of_face

if TYPE_CHECKING:
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
    from bkstore.tables.check import CHECK_COVERAGE, CHECK_FINDINGS
    from bkstore.tables.commands import (
        ANSWERS,
        AVAILABILITY,
        BOOKIE_FILES,
        ENSEMBLE_BOOKIES,
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
        METADATA_LEDGERS,
        METADATA_SEGMENTS,
    )
    from bkstore.tables.diff import DIFFERENCES
    from bkstore.tables.dump import (
        BOOKIE_FINDINGS,
        ENTRIES,
        ENTRY_LOGS,
        GROUPS,
        LEDGERS,
        LOG_LEDGERS,
    )
    from bkstore.tables.rewrites import LOSSES, REWRITES
    from bkstore.tables.table import (
        Column,
        Repeated,
        Schema,
        Table,
        require_pyarrow,
    )
    from bkstore.tables.usage import (
        USAGE,
        USAGE_BY_LEDGER,
        USAGE_BY_LOG,
        USAGE_BY_LOG_AND_LEDGER,
        USAGE_BY_SCOPE,
        USAGE_OF_CACHES,
        USAGE_OF_INDEX,
    )

__all__ = [
    "ANSWERS",
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
    "LOSSES",
    "METADATA_LEDGERS",
    "METADATA_SEGMENTS",
    "ORPHANS",
    "REWRITES",
    "SCOPE_BYTES",
    "SEQUENCES",
    "SURPLUS",
    "USAGE",
    "USAGE_BY_LEDGER",
    "USAGE_BY_LOG",
    "USAGE_BY_LOG_AND_LEDGER",
    "USAGE_BY_SCOPE",
    "USAGE_OF_CACHES",
    "USAGE_OF_INDEX",
    "VIOLATIONS",
    "Column",
    "Repeated",
    "Schema",
    "Table",
    "require_pyarrow",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ANSWERS": "bkstore.tables.commands",
        "AVAILABILITY": "bkstore.tables.commands",
        "BOOKIE_BYTES": "bkstore.tables.analyses",
        "BOOKIE_FILES": "bkstore.tables.commands",
        "BOOKIE_FINDINGS": "bkstore.tables.dump",
        "CHECK_COVERAGE": "bkstore.tables.check",
        "CHECK_FINDINGS": "bkstore.tables.check",
        "COMPARISON": "bkstore.tables.analyses",
        "Column": "bkstore.tables.table",
        "DIFFERENCES": "bkstore.tables.diff",
        "ENTRIES": "bkstore.tables.dump",
        "ENTRY_LOGS": "bkstore.tables.dump",
        "ENSEMBLE_BOOKIES": "bkstore.tables.commands",
        "ENTRY_RECORDS": "bkstore.tables.commands",
        "FINDINGS": "bkstore.tables.commands",
        "FRAGMENTATION": "bkstore.tables.analyses",
        "GROUPS": "bkstore.tables.dump",
        "HEALTH": "bkstore.tables.analyses",
        "HOLES": "bkstore.tables.analyses",
        "HOMELESS": "bkstore.tables.analyses",
        "INSPECT": "bkstore.tables.commands",
        "JOURNAL_RECORDS": "bkstore.tables.commands",
        "LAST_MARKS": "bkstore.tables.commands",
        "LEDGERS": "bkstore.tables.dump",
        "LEDGER_BYTES": "bkstore.tables.analyses",
        "LEDGER_LIST": "bkstore.tables.commands",
        "LOCATIONS": "bkstore.tables.commands",
        "LOG_ENTRIES": "bkstore.tables.commands",
        "LOG_LEDGERS": "bkstore.tables.dump",
        "LOG_METADATA": "bkstore.tables.commands",
        "LOG_OCCUPANCY": "bkstore.tables.analyses",
        "LOG_RECORDS": "bkstore.tables.commands",
        "LOOKUPS": "bkstore.tables.commands",
        "LOSSES": "bkstore.tables.rewrites",
        "METADATA_LEDGERS": "bkstore.tables.commands",
        "METADATA_SEGMENTS": "bkstore.tables.commands",
        "ORPHANS": "bkstore.tables.analyses",
        "REWRITES": "bkstore.tables.rewrites",
        "Repeated": "bkstore.tables.table",
        "SCOPE_BYTES": "bkstore.tables.analyses",
        "SEQUENCES": "bkstore.tables.analyses",
        "SURPLUS": "bkstore.tables.analyses",
        "Schema": "bkstore.tables.table",
        "Table": "bkstore.tables.table",
        "USAGE": "bkstore.tables.usage",
        "USAGE_BY_LEDGER": "bkstore.tables.usage",
        "USAGE_BY_LOG": "bkstore.tables.usage",
        "USAGE_BY_LOG_AND_LEDGER": "bkstore.tables.usage",
        "USAGE_BY_SCOPE": "bkstore.tables.usage",
        "USAGE_OF_CACHES": "bkstore.tables.usage",
        "USAGE_OF_INDEX": "bkstore.tables.usage",
        "VIOLATIONS": "bkstore.tables.analyses",
        "require_pyarrow": "bkstore.tables.table",
    },
    rooms=(
        "analyses",
        "check",
        "commands",
        "diff",
        "dump",
        "rewrites",
        "safe_text",
        "table",
        "usage",
    ),
)
__dir__ = names_of_face(__name__)
