"""Write paths: how entries get from memory into entry logs and index, and back.

`api` has the contract, `WritePath`: read it first. `interleaved`, `sorted` and `db` are the three
storages; the last two share `cached`, a path with two write caches. `pending_values` holds
unflushed locations by ledger and entry, `write_cache` unflushed records. `ledger_states` keeps
changed ledger states until a flush, `slot_reader` reads open index files.
"""

__all__: list[str] = []
