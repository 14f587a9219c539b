"""Several bookies: their metadata, and what is asked of them together.

`MetadataStore` is the contract of metadata stores; `MemoryStore`, `DirectoryStore` and
`DumpStore` are those that are here, `KeyValueStore` makes one of anything that has versioned
values. `open_metadata` opens whatever lies at a path.

`Cluster` runs real bookies in this process, with faults; `Client` creates and opens ledgers on
any bookies that have a `BookieClient`; a `LedgerHandle` is a ledger that is open. `Auditor` holds
what bookies have against the metadata (`bkstore.cluster.audit`). They load the storage when they
are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bkstore.cluster.store import DirectoryStore, KeyValueStore, MemoryStore, uuid_ledger_id
from bkstore.cluster.store_api import KeyValues, MetadataStore, Value, Versioned
from bkstore.cluster.store_dump import DumpStore, open_metadata, snapshot, store_of

if TYPE_CHECKING:
    from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
    from bkstore.cluster.bookie_client import BookieClient
    from bkstore.cluster.client import Client
    from bkstore.cluster.ensemble import Cluster
    from bkstore.cluster.ledger_access import ClientOptions
    from bkstore.cluster.ledger_handle import LedgerHandle
    from bkstore.cluster.placement import DefaultPlacement, RackPlacement, RegionPlacement

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
    "RackPlacement",
    "RegionPlacement",
    "Value",
    "Versioned",
    "open_metadata",
    "snapshot",
    "store_of",
    "uuid_ledger_id",
]

_MODULES = {
    "AuditOptions": "audit",
    "AuditReport": "audit",
    "Auditor": "audit",
    "BookieClient": "bookie_client",
    "Client": "client",
    "ClientOptions": "ledger_access",
    "Cluster": "ensemble",
    "DefaultPlacement": "placement",
    "LedgerHandle": "ledger_handle",
    "RackPlacement": "placement",
    "RegionPlacement": "placement",
}


def __getattr__(name: str) -> object:
    """Return a public name, loading its module; `AttributeError` for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bkstore.cluster.{_MODULES[name]}"), name)
