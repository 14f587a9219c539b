"""Summaries of the analyses' tables: key figures, the worst ledgers, and a headline.

`key_figures` computes the numbers: read it first. `worst_ledgers` finds which entries lack how many
replicas, `ledger_counts` why two numbers of ledgers differ, `headline` what matters most.
"""

__all__ = ["headline", "key_figures", "ledger_counts", "worst_ledgers"]
