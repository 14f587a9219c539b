"""Disk usage of one bookie, computed from its files, and the bytes that could be freed.

`disk_usage` has `Usage`, which uses the others: read it first. `live_ledgers` tells live ledgers
from garbage, `entry_logs` has the live bytes of each log and what garbage collection would do with
it, `index_size` the size of the index, `cache_needs` how large a bookie's caches need to be.
`ledger_bytes` has the bytes of single ledgers, and what deleting them gives back, `owner_usage`
those of topics, namespaces, tenants and components.
"""

from bkstore.offline.usage.cache_needs import CacheNeed, cache_needs
from bkstore.offline.usage.disk_usage import LedgerUsage, ScopeUsage, Totals, Usage
from bkstore.offline.usage.entry_logs import Fate, LogUsage
from bkstore.offline.usage.index_size import IndexPart
from bkstore.offline.usage.live_ledgers import LiveLedgers, read_live_list
from bkstore.offline.usage.owner_usage import (
    OwnerNumbers,
    OwnerUsage,
    UsageByOwner,
    bookie_shares,
)

__all__ = [
    "CacheNeed",
    "Fate",
    "IndexPart",
    "LedgerUsage",
    "LiveLedgers",
    "LogUsage",
    "OwnerNumbers",
    "OwnerUsage",
    "ScopeUsage",
    "Totals",
    "Usage",
    "UsageByOwner",
    "bookie_shares",
    "cache_needs",
    "read_live_list",
]
