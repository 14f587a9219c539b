"""StorageSuite: the contract of `LedgerStorage` as tests that any ledger storage can run.

Subclass it in a test module, say how a storage is made and of which kind it is, and pytest
collects the rest:

    class TestMine(StorageSuite):
        duplicates = "last"
        limbo = False
        cached = False

        def make_storage(self, path, options):
            return MyStorage(path, options)

What it is not: a test of formats. It goes through the contract only, so a storage needs tests
of its own bytes as well.
"""

from __future__ import annotations

from bkstore.testing.suites.storage.batch_adds import StorageBatchAddRules
from bkstore.testing.suites.storage.batches import StorageBatchRules
from bkstore.testing.suites.storage.durability import StorageKeepingRules
from bkstore.testing.suites.storage.entries import StorageEntryRules
from bkstore.testing.suites.storage.errors import StorageErrorRules
from bkstore.testing.suites.storage.garbage import StorageGarbageRules
from bkstore.testing.suites.storage.ledgers import StorageLedgerRules


class StorageSuite(
    StorageEntryRules,
    StorageBatchRules,
    StorageBatchAddRules,
    StorageLedgerRules,
    StorageKeepingRules,
    StorageGarbageRules,
    StorageErrorRules,
):
    """The storage contract; a storage passes by subclassing it with `make_storage`.

    `make_storage(path, options)` returns a writable storage kept in directory `path`, which may
    not exist yet, or hold what an earlier, closed storage left; `options` are those of
    `StorageOptions`. `duplicates`, `limbo`, `cached`, `shared_logs` and `highest_entry` say what
    the kind has.
    """
