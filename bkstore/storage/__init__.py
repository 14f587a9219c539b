"""A bookie's files, with I/O.

`bookie` is a whole bookie and `ledger_storage` its ledger storage: read these two first.
`entry_log` and `journal` are its two kinds of log, `ledgers` what stands between a storage's
callers and its logs and index, `directories` which folders and files a bookie has.
`read_only` reads the directories of a bookie that does not run: `BookieDir` and `open_index`.
`options` are a bookie's settings, `batch_limits` the contract of batch reads.
"""

__all__: list[str] = []
