"""A client of several bookies: it creates, writes, reads, recovers and deletes ledgers.

Read `client` (`Client`) and `ledger_handle` (the ledger that it opens) first. A handle is built on
`ledger_access`: one ledger's metadata, keys and bookies. `options` are the settings; `appends` has
the writers; `workers` has the threads that send requests to several bookies at a time.
`range_reads` reads consecutive entries from all bookies, with `many_entries` for each of them;
`batch_reads` has the batch reads of BP-62, `last_add_confirmed` reads the LAC, and `recovery`
closes a ledger whose writer is gone. `bookie_client` is the interface of one bookie;
`bookie_answers` combines the responses of several.
"""

__all__ = [
    "appends",
    "batch_reads",
    "bookie_answers",
    "bookie_client",
    "client",
    "last_add_confirmed",
    "ledger_access",
    "ledger_handle",
    "many_entries",
    "options",
    "range_reads",
    "recovery",
    "workers",
]
