"""Repair of a running cluster: missing replicas are planned, copied from sound ones, and verified.

Read `planner` (`RepairPlanner`) first: it audits a cluster and makes a `RepairPlan`, whose rows are
`replica_repairs`. The audit sees the ledgers as `finished_segments` shows them; `ledger_planner`
turns what it found about a ledger into rows, by what is known of the bookies of each segment
(`segment_replicas`) and the bookies that `replacement_choice` finds by the placement policy.
`reported_losses` reads the output of an earlier audit. `options` has the settings. Page:
`docs/repair.md`.
"""

from bkstore.repair.options import RepairOptions
from bkstore.repair.planner import RepairPlan, RepairPlanner
from bkstore.repair.replica_repairs import ReplicaRepair, repairs_table
from bkstore.repair.reported_losses import read_violations

__all__ = [
    "RepairOptions",
    "RepairPlan",
    "RepairPlanner",
    "ReplicaRepair",
    "read_violations",
    "repairs_table",
]
