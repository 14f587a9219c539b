"""The checker of BP-34: does every bookie hold the entries that the metadata assign to it?

Read `auditor` (`Auditor`, which runs an audit) first. `report` has its result, `options` its
settings, and `throttle` limits its rate. `batch_check` checks a batch of ledgers between two reads
of the store (`ledger_snapshots`), and returns a `batch_outcome`. `availability_queries` asks
bookies which entries they have, and `unavailable_bookies` decides what it means that one gives no
answer; `offline_bookies` answers for bookies that are not running; `bookkeeper_compat` is the check
as BookKeeper implements it; `resume_file` lets an interrupted run continue.
"""

from bkstore.cluster.audit.auditor import Auditor
from bkstore.cluster.audit.offline_bookies import DirectoryBookie, GroupsBookie
from bkstore.cluster.audit.options import AuditOptions, AvailabilitySource
from bkstore.cluster.audit.report import AuditReport
from bkstore.durability.violations import Violation, violations_table

__all__ = [
    "AuditOptions",
    "AuditReport",
    "Auditor",
    "AvailabilitySource",
    "DirectoryBookie",
    "GroupsBookie",
    "Violation",
    "violations_table",
]
