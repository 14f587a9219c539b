"""A client of several bookies: it creates, writes, reads, recovers and deletes ledgers.

`client` has `Client` and `handle` the ledger that it opens: read these two first. What a handle
stands on is `open_ledger`: one ledger's metadata, keys and bookies. `writer` appends through
`quorum_add`, or over a network `pipelined_writer`, with many entries under way; `workers` are the
threads that ask several bookies at a time. `recovery` ends a ledger whose writer is gone,
`batch_reads` are BP-62's, `last_add_confirmed` asks for the LAC. `bookie_client` is the contract of
one bookie as clients see it, and `bookie_answers` what several of them come to.
"""

__all__ = [
    "batch_reads",
    "bookie_answers",
    "bookie_client",
    "client",
    "handle",
    "last_add_confirmed",
    "open_ledger",
    "pipelined_writer",
    "quorum_add",
    "recovery",
    "workers",
    "writer",
]
