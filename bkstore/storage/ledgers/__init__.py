"""What stands between the callers of a ledger storage and its logs and index.

`assembly` puts a storage together from directories: read it first. `known_ledgers` answers which
ledgers are here, with which entries, and keeps their master keys, fences and limbo; `adds` takes
records, single ones and batches;
`last_add_confirmed` knows their LACs; `garbage_collection` gives the space of deleted ledgers
back, by removing entry logs and by compacting them: `garbage_pass` says what one pass is asked to
do and what it did, `compaction_throttle` how fast it may. How entries get into logs and index, for
each of the three storages, is in `write_paths`. `LedgerStorage` itself is
`bkstore.storage.ledger_storage`.
"""

__all__ = [
    "adds",
    "assembly",
    "compaction_throttle",
    "garbage_collection",
    "garbage_pass",
    "known_ledgers",
    "last_add_confirmed",
]
