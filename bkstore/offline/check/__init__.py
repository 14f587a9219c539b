"""Check a bookie's directories: index against logs, logs against index, and all other files.

`check_job` has `Check`: read it first. `findings` lists the kinds of findings, and `coverage`
counts what was read. `log_check` joins one log with the index rows that point into it, with the
parts `log_sizes`, `record_digests` and `entry_runs`; `workers` checks logs in parallel.
`ledger_states`, `journals` and `directories` check everything without records.
"""

from bkstore.offline.check.check_job import Check
from bkstore.offline.check.coverage import Coverage, LogCoverage
from bkstore.offline.check.findings import KINDS, CheckFinding

__all__ = ["KINDS", "Check", "CheckFinding", "Coverage", "LogCoverage"]
