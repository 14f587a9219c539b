"""Kernels of analyses: Arrow batches in, Arrow batches out, the same in every engine.

`sequences` condenses entries and compares groups, `holes` counts entries missing from a stripe,
`fragmentation` counts logs and contiguous stretches. `metadata_comparison` compares ledger metadata
with groups: `ledger_facts` has the facts that a ledger is judged by, `ledger_verdicts` the
verdicts, `verdict_rows` the rows about them. `batch_blocks` cuts batches between ledgers,
`groups_by_owner` does set operations on many ledgers at once, `index_columns` validates columns.
"""

__all__ = [
    "batch_blocks",
    "fragmentation",
    "groups_by_owner",
    "holes",
    "index_columns",
    "ledger_facts",
    "ledger_verdicts",
    "metadata_comparison",
    "sequences",
    "verdict_rows",
]
