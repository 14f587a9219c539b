"""The contract of `bkstore.index.api` as tests and as a state machine.

`suite` has `EntryIndexSuite`, which combines `entries`, `ledgers`, `listings` and `durability` over
`base`; `machine` has the state machine, whose model is dicts.
"""

__all__ = ["base", "durability", "entries", "ledgers", "listings", "machine", "suite"]
