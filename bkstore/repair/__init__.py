"""Repair of a running cluster: missing replicas are planned, copied from sound ones, and verified.

`planning` has plans: read its `planner` first. `repairer` (`Repairer`) carries a plan out, several
ledgers at a time: `ledger_repair` repairs one of them under its lock (`ledger_locks`). It has
`entry_copier` copy entries, and gives a segment other bookies by `ensemble_replacement`. `service`
repeats repairs, `metrics` counts them. Page: `docs/repair.md`.
"""

from bkstore.repair.planning.options import RepairOptions
from bkstore.repair.planning.planner import RepairPlan, RepairPlanner
from bkstore.repair.planning.replica_repairs import ReplicaRepair, repairs_table
from bkstore.repair.planning.reported_losses import read_violations
from bkstore.repair.repairer import Repairer, RepairReport
from bkstore.repair.service import RepairService

__all__ = [
    "RepairOptions",
    "RepairPlan",
    "RepairPlanner",
    "RepairReport",
    "RepairService",
    "Repairer",
    "ReplicaRepair",
    "read_violations",
    "repairs_table",
]
