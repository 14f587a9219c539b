"""Where is entry E of ledger L? The index contract and its backends.

`api` states the contract: read it first. `memtable`, `hierarchical` and `rocks` fulfil it;
`layered` puts unflushed entries over flushed ones; `partitioned` joins the databases of several
directories. `scope_marker` is the file that says that a directory holds scopes other than 0,
`damage_runs` tells of damage in runs, `many_ledgers` has what listing many ledgers takes.
`offset_range` answers for stream offsets what the others do for entries.

Backends are imported by module, so that only the one in use loads its libraries.
"""

from bkstore.index.api import EntryIndex, EntrySource, Finding, IndexBatch, LedgerState

__all__ = ["EntryIndex", "EntrySource", "Finding", "IndexBatch", "LedgerState"]
