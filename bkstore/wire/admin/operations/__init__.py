"""Endpoints for operators and probes: whether the bookie is fit, and what its cluster is doing.

`controls` has `Controls`, what the process around an admin lets it ask and do: read it first.
`condition` answers whether the bookie is ready, fit and read-only, `settings` what it was started
with. The others need the metadata store of a cluster, which `cluster` looks for: `bookies` lists
bookies and their disks, `autorecovery` shows and steers auditors and replication workers,
`decommissions` takes bookies out of the cluster.
"""

__all__ = [
    "autorecovery",
    "bookies",
    "cluster",
    "condition",
    "controls",
    "decommissions",
    "settings",
]
