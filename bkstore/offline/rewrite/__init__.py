"""Rewrite a bookie's directory to a new one: converted, with a rebuilt index, or salvaged.

`convert` takes the rows from the index, `rebuild` from the entry logs, `salvage` from damaged logs
and what is left of the index. They share the steps in `rewrite_job`: read it first.
`target_directories` maps the source's directories to the target's, `log_names` assigns entry log
ids, and `file_copies` copies files. `index_writer` writes and compares the index,
`recovered_ledger_states` finds ledgers and their states, `salvaged_log` rewrites a damaged log,
`digest_mismatches` drops records whose digest does not match.
"""

from bkstore.former_names import former_exports
from bkstore.offline.rewrite.convert import convert
from bkstore.offline.rewrite.rebuild import rebuild_index
from bkstore.offline.rewrite.rewrite_job import OpenOptions, RewriteProgress, RewriteResult
from bkstore.offline.rewrite.salvage import Loss, SalvageResult, salvage

__all__ = [
    "Loss",
    "OpenOptions",
    "RewriteProgress",
    "RewriteResult",
    "SalvageResult",
    "convert",
    "rebuild_index",
    "salvage",
]

__getattr__ = former_exports(__name__, Opening="OpenOptions")
