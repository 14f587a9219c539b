"""Several bookies: their metadata, and what is asked of them together.

`MetadataStore` is the contract of metadata stores; `MemoryStore`, `DirectoryStore` and
`DumpStore` are those that are here, `KeyValueStore` makes one of anything that has versioned
values. `open_metadata` opens whatever lies at a path.
"""

from bkstore.cluster.store import DirectoryStore, KeyValueStore, MemoryStore, uuid_ledger_id
from bkstore.cluster.store_api import KeyValues, MetadataStore, Value, Versioned
from bkstore.cluster.store_dump import DumpStore, open_metadata, snapshot, store_of

__all__ = [
    "DirectoryStore",
    "DumpStore",
    "KeyValueStore",
    "KeyValues",
    "MemoryStore",
    "MetadataStore",
    "Value",
    "Versioned",
    "open_metadata",
    "snapshot",
    "store_of",
    "uuid_ledger_id",
]
