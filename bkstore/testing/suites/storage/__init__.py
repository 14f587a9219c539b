"""The contract of `LedgerStorage` as tests and as state machines.

`suite` has `StorageSuite`, made of `entries`, `batches`, `batch_adds`, `ledgers`, `durability`,
`garbage` and `errors` over `base`; `machine` has the state machines over a storage and over a
bookie, which are checked against the dicts of `model`.
"""

__all__ = [
    "base",
    "batch_adds",
    "batches",
    "durability",
    "entries",
    "errors",
    "garbage",
    "ledgers",
    "machine",
    "model",
    "suite",
]
