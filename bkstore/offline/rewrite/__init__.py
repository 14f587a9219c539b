"""Rewriting a bookie's directory into a new one: converted, with a rebuilt index, or salvaged.

One frame, three sources of rows: `convert` takes them from the index, `rebuild` from the entry
logs, `salvage` from damaged logs and whatever index there is. `frame` has what they share: read it
first. `directories` says where the source's files go, `log_names` which names entry logs have in
the other layout, `carried_files` copies them. `index_writer` writes and compares the index,
`known_states` finds ledgers and their states, `fresh_logs` reads a damaged log and writes a new
one, `unfit_records` are those whose digest does not fit.
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
