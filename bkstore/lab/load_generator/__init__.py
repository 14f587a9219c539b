"""Load on an index or a storage: threads that run a mix of operations for some time.

`operations` has the operations and their mix, `key_draws` chooses what is read. `index_target` and
`storage_target` are what is driven, both a `target`. `clients` runs the threads; `latencies` counts
their latencies, with bounded memory.
"""

__all__: list[str] = []
