"""How entries get from memory into entry logs and index, and back: one way for each storage.

`api` is the contract, `WritePath`: read it first. `interleaved`, `sorted` and `db` are the three
storages; the last two share `cached`, a path with two write caches. `pending` holds what is
unflushed, single values and batches: records as `write_cache`, locations as `pending_locations`.
`ledger_states` is what is set of a ledger until it is flushed, `slot_reader` reads open index
files. `bookkeeper_compat` lists unflushed index pages with upstream's gap.
"""

__all__ = [
    "api",
    "bookkeeper_compat",
    "cached",
    "db",
    "interleaved",
    "ledger_states",
    "pending",
    "pending_locations",
    "slot_reader",
    "sorted",
    "write_cache",
]
