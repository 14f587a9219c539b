"""Ledger metadata as bytes: as BookKeeper's stores keep it, and as a JSON file.

`serialized` reads and writes versions 1 to 3 and is the one to read first; `version1` has the
text lines of the oldest, `messages` the protobuf messages of the others and of underreplicated
marks. `store_paths` says under which path a store keeps a ledger; `json_file` is the document
that `audit` and `analyze` take. `ledger_layout`, `service_info` (registrations) and
`underreplication` (locks, votes, check times) are what else lies in a cluster's ZooKeeper. The
values are those of `bkstore.ledger_metadata`.
"""

__all__ = [
    "json_file",
    "ledger_layout",
    "messages",
    "serialized",
    "service_info",
    "store_paths",
    "underreplication",
    "version1",
]
