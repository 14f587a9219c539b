"""The experiments of the package, a module each: `bkstore lab NAME`.

Of indexes: `layouts` (index files, RocksDB, memory), `keys` (order and width of RocksDB's keys),
`pages` (of index files), `deletes` (what deleted ledgers leave behind). Of storages: `batch` (sizes
of batches), `cache` (reading ahead). Of both: `workload` (a mix of operations by threads). Of
encodings: `availability` (sets of entries), `blooms` (filters), `lookups` (objects of streams).
Of clusters: `losses` (entries lost over years).
"""

__all__: list[str] = []
