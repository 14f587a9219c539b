"""What fills the disk of one bookie, from its files alone, and what would be given back.

`run` has `Usage`, which asks the others: read it first. `live_ledgers` says whose bytes are live,
`entry_logs` what of each log is, and what garbage collection would do with it, `index_size` what
the index takes beside its rows, `caches` what a bookie's caches need to hold.
"""

from bkstore.offline.usage.caches import CacheNeed, cache_needs
from bkstore.offline.usage.entry_logs import Fate, LogUsage
from bkstore.offline.usage.index_size import IndexPart
from bkstore.offline.usage.live_ledgers import LiveLedgers, read_live_list
from bkstore.offline.usage.run import LedgerUsage, ScopeUsage, Totals, Usage

__all__ = [
    "CacheNeed",
    "Fate",
    "IndexPart",
    "LedgerUsage",
    "LiveLedgers",
    "LogUsage",
    "ScopeUsage",
    "Totals",
    "Usage",
    "cache_needs",
    "read_live_list",
]
