"""Appends to a ledger: one entry, a batch of them, or many in flight at once.

`quorum_add` adds one entry to its write set: read it first. `writer` has the writer of a ledger in
one process, `pipelined_writer` the one over a network, whose entries are queued for each bookie in
`send_queues`; `pending_append` has the result of an append that returns before it is confirmed.
"""

__all__ = ["pending_append", "pipelined_writer", "quorum_add", "send_queues", "writer"]
