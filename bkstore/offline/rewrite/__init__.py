"""Rewrite a bookie's directory to a new one: converted, with a rebuilt index, or salvaged.

`convert` takes the rows from the index, `rebuild` from the entry logs, `salvage` from damaged logs
and what is left of the index. They share the steps in `frame`: read it first. `directories` maps
the source's files to the target, `log_names` assigns entry log ids, and `carried_files` copies
files. `index_writer` writes and compares the index, `known_states` finds ledgers and their states,
`fresh_logs` rewrites a damaged log, `unfit_records` drops records whose digest does not match.
"""

from bkstore.offline.rewrite.convert import convert
from bkstore.offline.rewrite.frame import Opening, RewriteProgress, RewriteResult
from bkstore.offline.rewrite.rebuild import rebuild_index
from bkstore.offline.rewrite.salvage import Loss, SalvageResult, salvage

__all__ = [
    "Loss",
    "Opening",
    "RewriteProgress",
    "RewriteResult",
    "SalvageResult",
    "convert",
    "rebuild_index",
    "salvage",
]
