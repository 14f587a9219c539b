"""How entries get from memory into entry logs and index, and back: one way for each storage.

`api` is the contract, `WritePath`: read it first. `interleaved`, `sorted` and `db` are the three
storages; the last two share `cached`, a path with two write caches. `pending` holds what is
unflushed, single values and batches: locations there, records in `write_cache`. `ledger_states` is
what is set of a ledger until it is flushed, `slot_reader` reads open index files.
"""

__all__ = [
    "api",
    "cached",
    "db",
    "interleaved",
    "ledger_states",
    "pending",
    "slot_reader",
    "sorted",
    "write_cache",
]
