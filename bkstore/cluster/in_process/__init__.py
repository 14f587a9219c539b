"""Real bookies in this process, for tests: no JVM, no ZooKeeper, faults on demand.

`cluster` has `Cluster`: read it first. `bookie` is one of its bookies with what is between it and
its clients, `bookie_client` how a client sees it, `damage_at_rest` what can happen to its files.
"""

__all__ = ["bookie", "bookie_client", "cluster", "damage_at_rest"]
