"""What the tables of a dump's analyses come to: numbers, the worst ledgers, one sentence.

`key_figures` takes the numbers from the tables: read it first. `worst_ledgers` says which
entries lack how many replicas, `ledger_counts` why two numbers of ledgers differ, `headline`
what matters most.
"""

__all__ = ["headline", "key_figures", "ledger_counts", "worst_ledgers"]
