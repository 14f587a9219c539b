"""Several bookies: their metadata, and what is asked of them together.

`MetadataStore` is the contract of metadata stores; `MemoryStore`, `DirectoryStore` and
`DumpStore` are those that are here, `ZooKeeperStore` is that of a real cluster, `KeyValueStore`
makes one of anything that has versioned values. `open_metadata` opens whatever lies at a path or
a service URI, for reading; `open_store` opens what is to be changed.

`Cluster` runs real bookies in this process, with faults; `Client` creates and opens ledgers on
any bookies that have a `BookieClient`; a `LedgerHandle` is a ledger that is open. `Auditor` holds
what bookies have against the metadata (`bkstore.cluster.audit`). They load the storage when they
are asked for.

The rooms: `store` (metadata), `client`, `placement`, `audit`, and `in_process`, bookies that need
no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.cluster.store.api import KeyValues, MetadataStore, Value, Versioned
from bkstore.cluster.store.dump_store import DumpStore, snapshot, store_of
from bkstore.cluster.store.key_value_store import (
    DirectoryStore,
    KeyValueStore,
    MemoryStore,
    uuid_ledger_id,
)
from bkstore.cluster.store.opening import open_metadata, open_store
from bkstore.lazy_faces import lazy_names

if TYPE_CHECKING:
    from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
    from bkstore.cluster.client.appends.later import PendingAppend
    from bkstore.cluster.client.bookie_client import BookieClient
    from bkstore.cluster.client.client import Client
    from bkstore.cluster.client.handle import LedgerHandle
    from bkstore.cluster.client.open_ledger import ClientOptions
    from bkstore.cluster.in_process.cluster import Cluster
    from bkstore.cluster.placement.policies import DefaultPlacement, RackPlacement, RegionPlacement
    from bkstore.cluster.store.zookeeper.store import ZooKeeperStore

__all__ = [
    "AuditOptions",
    "AuditReport",
    "Auditor",
    "BookieClient",
    "Client",
    "ClientOptions",
    "Cluster",
    "DefaultPlacement",
    "DirectoryStore",
    "DumpStore",
    "KeyValueStore",
    "KeyValues",
    "LedgerHandle",
    "MemoryStore",
    "MetadataStore",
    "PendingAppend",
    "RackPlacement",
    "RegionPlacement",
    "Value",
    "Versioned",
    "ZooKeeperStore",
    "open_metadata",
    "open_store",
    "snapshot",
    "store_of",
    "uuid_ledger_id",
]

__getattr__ = lazy_names(
    __name__,
    {
        "AuditOptions": "bkstore.cluster.audit",
        "AuditReport": "bkstore.cluster.audit",
        "Auditor": "bkstore.cluster.audit",
        "BookieClient": "bkstore.cluster.client.bookie_client",
        "Client": "bkstore.cluster.client.client",
        "ClientOptions": "bkstore.cluster.client.open_ledger",
        "Cluster": "bkstore.cluster.in_process.cluster",
        "DefaultPlacement": "bkstore.cluster.placement.policies",
        "LedgerHandle": "bkstore.cluster.client.handle",
        "PendingAppend": "bkstore.cluster.client.appends.later",
        "RackPlacement": "bkstore.cluster.placement.policies",
        "RegionPlacement": "bkstore.cluster.placement.policies",
        "ZooKeeperStore": "bkstore.cluster.store.zookeeper.store",
    },
)
