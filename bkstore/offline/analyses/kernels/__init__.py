"""Kernels of analyses: Arrow batches in, Arrow batches out, the same in every engine.

`sequences` condenses entries and compares groups, `holes` counts what a stripe lacks,
`fragmentation` stretches. `judge` holds ledger metadata against groups: `ledger_said` is what a
ledger is judged by, `judged_ledgers` what comes of it, `verdict_rows` the rows that are told.
Batches are cut into `whole_ledger_blocks`, many ledgers are done at once by
`ledgers_side_by_side`. `index_columns` are what all of them take out of batches, and refuse.
"""

__all__ = [
    "fragmentation",
    "holes",
    "index_columns",
    "judge",
    "judged_ledgers",
    "ledger_said",
    "ledgers_side_by_side",
    "sequences",
    "verdict_rows",
    "whole_ledger_blocks",
]
