"""Ledger metadata as bytes: as in BookKeeper's metadata stores, and as a JSON file.

`serialized` reads and writes versions 1 to 3: read it first; `version1` has the text lines of
version 1, `messages` the protobuf messages of the others and of underreplicated marks,
`store_paths` the paths of ledgers in a store; `json_file` is the document that `audit` and
`analyze` take. `ledger_layout`, `service_info` (registrations) and `underreplication` (marks,
locks, votes, check times) are other nodes in ZooKeeper; `bookie_ids` checks bookie ids.
"""

__all__ = [
    "bookie_ids",
    "json_file",
    "ledger_layout",
    "messages",
    "serialized",
    "service_info",
    "store_paths",
    "underreplication",
    "version1",
]
