"""StorageSuite: the contract of `LedgerStorage` as tests that any ledger storage can run.

Subclass it in a test module, define kind and `make_storage`; pytest collects the tests:

    class TestMine(StorageSuite):
        duplicates = "last"
        limbo = False
        cached = False

        def make_storage(self, path, options):
            return MyStorage(path, options)

It uses the contract only and tests no formats, so a storage also needs tests of its bytes.
"""

from __future__ import annotations

from bkstore.testing.suites.storage.batch_adds import StorageBatchAddRules
from bkstore.testing.suites.storage.batches import StorageBatchRules
from bkstore.testing.suites.storage.durability import StorageDurabilityRules
from bkstore.testing.suites.storage.entries import StorageEntryRules
from bkstore.testing.suites.storage.errors import StorageErrorRules
from bkstore.testing.suites.storage.garbage import StorageGarbageRules
from bkstore.testing.suites.storage.ledgers import StorageLedgerRules


class StorageSuite(
    StorageEntryRules,
    StorageBatchRules,
    StorageBatchAddRules,
    StorageLedgerRules,
    StorageDurabilityRules,
    StorageGarbageRules,
    StorageErrorRules,
):
    """The storage contract; a storage passes by subclassing it with `make_storage`.

    `make_storage(path, options)` returns a writable storage in directory `path`, which may not
    exist yet or may hold the data of an earlier, closed storage; `options` is a `StorageOptions`.
    `duplicates`, `limbo`, `cached`, `shared_logs` and `highest_entry` describe the kind of storage.
    """
