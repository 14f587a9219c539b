"""Reading and writing a bookie's files.

`bookie` is a whole bookie and `ledger_storage` its ledger storage: read these two first.
`entry_log` and `journal` are its two kinds of log, `ledgers` has the parts of a storage between its
calls and its logs and index, `directories` finds and locks a bookie's folders and files.
`read_only` reads the directories of a bookie that is not running: `BookieDir` and `open_index`.
`options` has a bookie's settings, `batch_limits` the size rules of batch reads.
"""

__all__: list[str] = []
