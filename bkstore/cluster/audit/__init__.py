"""The checker of BP-34: does every bookie hold what the metadata store says it should?

`auditor` has the run, `Auditor`: read it first. `report` is what it finds, `options` what it is
told, `pace` how fast it may go. Batches of ledgers are judged by `batch_check`, after two `looks`
at the store, and add up as `batch_outcome`; `availability_queries` are the questions to bookies,
`offline_bookies` those that are not running, `bookkeeper_compat` the check as upstream has it,
`resume_file` what an interrupted run leaves.
"""

from bkstore.cluster.audit.auditor import Auditor
from bkstore.cluster.audit.offline_bookies import DirectoryBookie, GroupsBookie
from bkstore.cluster.audit.options import AuditOptions, EntriesOfLedger
from bkstore.cluster.audit.report import AuditReport
from bkstore.durability import Violation, violations_table

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
