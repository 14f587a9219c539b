"""Plans of repairs: which replicas are missing, where copies of them are, and where they go.

Read `planner` (`RepairPlanner`) first: it audits a cluster and makes a `RepairPlan`, whose rows are
`replica_repairs`. The audit sees the ledgers as `finished_segments` shows them; `ledger_planner`
turns what it found about a ledger into rows, by what is known of the bookies of each segment
(`segment_replicas`) and the bookies that `replacement_choice` finds by the placement policy.
`verified_bookies` are bookies whose copies are all read: `sound_reader` reads them, and what is
copied later, at a `byte_rate`.
`reported_losses` reads the output of an earlier audit. `options` has the settings.
"""

__all__ = ["planner", "replica_repairs", "reported_losses"]
