"""The checker of BP-34: does every bookie hold what the metadata store says it should?

`Auditor` runs it, `AuditReport` is what it finds. `auditor` has the run, `checking` the rules,
`durability` the set algebra, `asking` the questions to bookies, `sources` bookies that are not
running, `faithful` the check as it was built, `resume` what an interrupted run leaves.
"""

from bkstore.cluster.audit.auditor import Auditor
from bkstore.cluster.audit.options import AuditOptions, EntriesOfLedger
from bkstore.cluster.audit.report import AuditReport, Violation, violations_table
from bkstore.cluster.audit.sources import DirectoryBookie, GroupsBookie

__all__ = [
    "AuditOptions",
    "AuditReport",
    "Auditor",
    "DirectoryBookie",
    "EntriesOfLedger",
    "GroupsBookie",
    "Violation",
    "violations_table",
]
