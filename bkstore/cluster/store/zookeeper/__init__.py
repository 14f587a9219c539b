"""The metadata store of a real cluster: the znodes that BookKeeper keeps in ZooKeeper.

`store` has `ZooKeeperStore` and is the one to read first; `bkstore.cluster.open_metadata` opens
it by a service URI, which `service_uri` reads. Below it: `kazoo_client`, the one module that
imports kazoo, and `connection`, requests that are sent again until they have an answer; `nodes`,
versioned values over them; `ledger_tree` and `id_generator`, what the layouts have apart.
Beside it: `registration`, bookies that stay registered; `watches` and `events`, the thread that
tells of changes; `underreplication`, marks as auditors and workers use them; `formatting`, new
clusters. Page: `docs/zookeeper.md`.
"""

__all__ = [
    "connection",
    "events",
    "formatting",
    "id_generator",
    "kazoo_client",
    "ledger_tree",
    "nodes",
    "registration",
    "service_uri",
    "store",
    "underreplication",
    "watches",
]
