"""Metadata stores: serialized ledger metadata, registered bookies and marks, by versioned keys.

Read `api` first: it has the protocols `MetadataStore` and `KeyValues`. `key_value_store` implements
the former on any `KeyValues`; `memory_values` and `directory_values` implement the latter.
`dump_store` reads a folder that was dumped from another store. `opening` opens a path or a service
URI. `owners` reads whose the ledgers are. The package `zookeeper` has the store of a real cluster.
"""

__all__ = [
    "api",
    "directory_values",
    "dump_store",
    "key_value_store",
    "memory_values",
    "opening",
    "owners",
    "zookeeper",
]
