"""Checking a bookie's directories: index against logs, logs against index, and all they say.

`run` has `Check`: read it first. `findings` lists the kinds of what can be found, `coverage` says
what was looked at. `log_check` joins one log with the rows of the index that point into it, in
`workers` side by side; `log_sizes`, `record_digests` and `entry_runs` are its
parts. `states`, `journals` and `directories` check what has no records.
"""

from bkstore.offline.check.coverage import Coverage, LogCoverage
from bkstore.offline.check.findings import KINDS, CheckFinding
from bkstore.offline.check.run import Check

__all__ = ["KINDS", "Check", "CheckFinding", "Coverage", "LogCoverage"]
