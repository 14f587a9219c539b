"""Appends to a ledger: one entry, a stretch of them, or many that are under way at once.

`quorum_add` brings one entry to its write set: read it first. `writer` has the writer of a ledger
in one process, and over a network `pipelined_writer`, whose entries wait for their bookies in
`lanes`; `later` is what an append gives that returns before it is confirmed.
"""

__all__ = ["lanes", "later", "pipelined_writer", "quorum_add", "writer"]
