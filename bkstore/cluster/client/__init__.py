"""A client of several bookies: it creates, writes, reads, recovers and deletes ledgers.

`client` has `Client` and `handle` the ledger that it opens: read these two first. What a handle
stands on is `open_ledger`: one ledger's metadata, keys and bookies. `appends` are its writers;
`workers` are the threads that ask several bookies at a time. `range_reads` reads entries in a row
from all of them, by `many_entries` from each, `batch_reads` are BP-62's, `last_add_confirmed` asks
for the LAC, `recovery` ends a ledger whose writer is gone. `bookie_client` is the contract of one
bookie as clients see it, and `bookie_answers` what several of them come to.
"""

__all__ = [
    "appends",
    "batch_reads",
    "bookie_answers",
    "bookie_client",
    "client",
    "handle",
    "last_add_confirmed",
    "many_entries",
    "open_ledger",
    "range_reads",
    "recovery",
    "workers",
]
