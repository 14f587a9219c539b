"""Summaries of the analyses' tables: key figures, the worst ledgers, and a headline.

`key_figures` computes the numbers: read it first. `health_classes` says how bad a ledger's state
is, `worst_ledgers` which are the worst, `affected_entries` which of their entries are meant,
`topics` which topics ledgers belong to, `ledger_counts` why numbers of ledgers differ, `headline`
what matters most; all by `table_columns`.
"""

__all__ = [
    "affected_entries",
    "headline",
    "health_classes",
    "key_figures",
    "ledger_counts",
    "table_columns",
    "topics",
    "worst_ledgers",
]
