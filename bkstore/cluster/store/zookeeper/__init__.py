"""The metadata store of a real cluster: the znodes that BookKeeper keeps in ZooKeeper.

Read `store` (`ZooKeeperStore`) first; `bkstore.cluster.open_metadata` opens it by a service URI,
which `service_uri` parses. It is built on `kazoo_client`, the only module that imports kazoo,
`connection`, which retries requests until they have an answer, and `nodes`, versioned values in
znodes; `ledger_tree` and `id_generator` have the differences of the ledger managers. `registration`
keeps bookies registered; `watches` and `events` report changes; `underreplication` has marks and
locks for auditors and workers; `new_cluster` creates clusters. Page: `docs/zookeeper.md`.
"""

__all__ = [
    "connection",
    "events",
    "id_generator",
    "kazoo_client",
    "ledger_tree",
    "new_cluster",
    "nodes",
    "registration",
    "service_uri",
    "store",
    "underreplication",
    "watches",
]
