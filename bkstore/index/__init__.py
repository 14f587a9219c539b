"""Where is entry E of ledger L? The index contract and its backends.

`api` states the contract; `memtable`, `hierarchical` and `rocks` fulfil it; `layered` puts
unflushed entries over flushed ones; `partitioned` joins the databases of several directories.
Backends are imported by module, so that only the one in use loads its libraries.
"""

from bkstore.index.api import EntryIndex, EntrySource, Finding, IndexBatch, LedgerState

__all__ = ["EntryIndex", "EntrySource", "Finding", "IndexBatch", "LedgerState"]
