"""The parts of a ledger storage between its public calls and its logs and index.

`opening` opens a storage from directories: read it first. `known_ledgers` lists ledgers and their
entries, and keeps master keys, fences and limbo; `ledger_adds` adds records, singly and in batches;
`last_add_confirmed` tracks LACs. `garbage_collection` removes entry logs of deleted ledgers,
`compaction` rewrites those with few live bytes, `compaction_throttle` limits its speed, and
`garbage_pass` has the options and the report of one pass. `write_paths` writes entries to logs and
index, for each of the three storages. `LedgerStorage` is in `bkstore.storage.ledger_storage`.
"""

__all__: list[str] = []
