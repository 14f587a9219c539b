"""EntryIndexSuite: the contract of `bkstore.index.api` as tests that any backend can run. Subclass
it in a test module and define how an index is made; pytest collects the tests:

    class TestMine(EntryIndexSuite):
        def make_index(self, path):
            return MyIndex(path, writable=True)

        def reopen(self, path):
            return MyIndex(path)

It uses the contract only and tests no formats, so a backend also needs tests of its bytes.
"""

from __future__ import annotations

from bkstore.testing.suites.index.durability import DurabilityRules
from bkstore.testing.suites.index.entries import EntryRules
from bkstore.testing.suites.index.ledgers import LedgerRules
from bkstore.testing.suites.index.listings import ListingRules


class EntryIndexSuite(EntryRules, LedgerRules, ListingRules, DurabilityRules):
    """The index contract; a backend passes by subclassing it with `make_index` and `reopen`.

    `make_index(path)` returns a writable index in directory `path`, which may not exist yet or
    may hold the data of an earlier, closed index. `reopen(path)` returns a read-only index of
    the same data, or None if the backend keeps nothing; durability tests are skipped then.
    `highest_entry` is the highest entry id that the backend accepts; it must refuse the next.
    """
