"""The parts of a ledger storage between its public calls and its logs and index.

`opening` opens a storage from directories: read it first. `known_ledgers` lists ledgers and their
entries, and keeps master keys, fences and limbo; `ledger_adds` adds records, singly and in batches;
`last_add_confirmed` tracks LACs. `garbage_collection` frees the space of deleted ledgers by
removing and compacting entry logs: `garbage_pass` has the options and the report of one pass,
`compaction_throttle` limits its speed. `write_paths` writes entries to logs and index, for each of
the three storages. `LedgerStorage` itself is in `bkstore.storage.ledger_storage`.
"""

__all__ = [
    "compaction_throttle",
    "garbage_collection",
    "garbage_pass",
    "known_ledgers",
    "last_add_confirmed",
    "ledger_adds",
    "opening",
]
