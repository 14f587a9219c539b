"""Several bookies: their metadata, and what is asked of them together.

`MetadataStore` is the contract of metadata stores: `MemoryStore`, `DirectoryStore`, `DumpStore`,
`ZooKeeperStore` for a real cluster, and `KeyValueStore` over any versioned values. `open_metadata`
opens a path or a service URI for reading, `open_store` for changes.

`Cluster` runs real bookies in this process, with faults. `Client` creates and opens ledgers on
bookies that have a `BookieClient`; a `LedgerHandle` is an open ledger. `Auditor` checks what
bookies have against the metadata. The storage is imported at the first use of these.

The rooms: `store` (metadata), `client`, `placement`, `audit`, `garbage`, and `in_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.cluster.store.api import KeyValues, MetadataStore, Value, Versioned
from bkstore.cluster.store.dump_store import DumpStore, make_memory_store, snapshot
from bkstore.cluster.store.key_value_store import (
    DirectoryStore,
    KeyValueStore,
    MemoryStore,
    uuid_ledger_id,
)
from bkstore.cluster.store.opening import open_metadata, open_store
from bkstore.lazy_exports import lazy_names

if TYPE_CHECKING:
    from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
    from bkstore.cluster.client.appends.pending_append import PendingAppend
    from bkstore.cluster.client.bookie_client import BookieClient
    from bkstore.cluster.client.client import Client
    from bkstore.cluster.client.ledger_handle import LedgerHandle
    from bkstore.cluster.client.options import ClientOptions
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
    "make_memory_store",
    "open_metadata",
    "open_store",
    "snapshot",
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
        "ClientOptions": "bkstore.cluster.client.options",
        "Cluster": "bkstore.cluster.in_process.cluster",
        "DefaultPlacement": "bkstore.cluster.placement.policies",
        "LedgerHandle": "bkstore.cluster.client.ledger_handle",
        "PendingAppend": "bkstore.cluster.client.appends.pending_append",
        "RackPlacement": "bkstore.cluster.placement.policies",
        "RegionPlacement": "bkstore.cluster.placement.policies",
        "ZooKeeperStore": "bkstore.cluster.store.zookeeper.store",
        "store_of": "bkstore.cluster.store.dump_store:make_memory_store",
    },
)
