"""The location of entry E of ledger L: the index contract and its backends.

`api` defines the contract: read it first. `memtable`, `hierarchical` and `rocks` implement it;
`layered` merges unflushed entries with flushed ones; `partitioned` joins the databases of several
directories. `scope_marker` marks a directory that holds scopes other than 0, `damage_runs` reports
damage in runs, `bulk_listing` has helpers for listing many ledgers. `offset_range` is the index for
stream offsets. Backends are imported by module, so that only the one in use loads its libraries.
"""

from bkstore.index.api import (
    EntryIndex,
    EntrySource,
    Finding,
    IndexBatch,
    LedgerListing,
    LedgerState,
    UnknownLedgers,
)

__all__ = [
    "EntryIndex",
    "EntrySource",
    "Finding",
    "IndexBatch",
    "LedgerListing",
    "LedgerState",
    "UnknownLedgers",
]
