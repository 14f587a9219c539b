"""EntryIndexSuite: the contract of `bkstore.index.api` as tests that any backend can run.

Subclass it in a test module, say how an index is made, and pytest collects the rest:

    class TestMine(EntryIndexSuite):
        def make_index(self, path):
            return MyIndex(path, writable=True)

        def reopen(self, path):
            return MyIndex(path)

What it is not: a test of formats. It goes through the contract only, so a backend needs tests
of its own bytes as well.
"""

from __future__ import annotations

from bkstore.testing.suites.index.durability import KeepingRules
from bkstore.testing.suites.index.entries import EntryRules
from bkstore.testing.suites.index.ledgers import LedgerRules
from bkstore.testing.suites.index.listings import ListingRules


class EntryIndexSuite(EntryRules, LedgerRules, ListingRules, KeepingRules):
    """The index contract; a backend passes by subclassing it with `make_index` and `reopen`.

    `make_index(path)` returns a writable index kept in directory `path`, which may not exist
    yet, or hold what an earlier, closed index left. `reopen(path)` returns a read-only one of
    the same data, None if nothing is kept: tests about durability are skipped then.
    `highest_entry` is the highest entry id that the backend takes; the next must be refused.
    """
