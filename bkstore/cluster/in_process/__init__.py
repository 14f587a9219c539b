"""Real bookies in this process, for tests: no JVM, no ZooKeeper, faults on demand.

Read `cluster` (`Cluster`) first. `bookie` is one of its bookies, with faults that can be injected;
`bookie_client` is a client of such a bookie; `damage_at_rest` damages its files.
"""

__all__ = ["bookie", "bookie_client", "cluster", "damage_at_rest"]
