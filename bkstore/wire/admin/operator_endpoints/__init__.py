"""Endpoints for operators and probes: the condition of the bookie and of its cluster.

`host_callbacks` has `Controls`, the admin's callbacks into its host process: read it first.
`health` answers whether the bookie is ready, sane and read-only; `settings` shows its settings. The
others need a cluster's metadata store, which `cluster_store` checks for: `bookies` lists bookies
and disks, `autorecovery` controls auditors and replication workers, `decommissions` removes
bookies.
"""

__all__ = [
    "autorecovery",
    "bookies",
    "cluster_store",
    "decommissions",
    "health",
    "host_callbacks",
    "settings",
]
