"""Metadata stores: serialized ledger metadata, registered bookies and marks, by versioned keys.

`api` has the contracts, `MetadataStore` and the `KeyValues` below it: read it first.
`key_value_store` makes a store of any versioned values; `memory_values` and `directory_values`
are those that are here. `dump_store` reads folders that were copied out of one. `opening` has
`open_metadata`, which opens whatever a path or a service URI names. The room `zookeeper` is the
store of a real cluster.
"""

__all__ = [
    "api",
    "directory_values",
    "dump_store",
    "key_value_store",
    "memory_values",
    "opening",
    "zookeeper",
]
