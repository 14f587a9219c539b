"""LayeredSource: unflushed entries over flushed ones, listed as by
`SortedLedgerStorage.getListOfEntriesOfLedger`: two ascending streams, equal ids once. (BookKeeper's
merge uses -1 as "no element"; there is no id -1 here.)"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike
from bkstore.index.bulk_listing import LedgerErrors, Listing, iterate_results, yield_or_record_error

_LEDGERS_PER_CHUNK = 1 << 10
"""Ledgers listed at a time: their unflushed entries first, then their flushed ones."""


class LayeredSource(EntrySource):
    """The union of two entry sources. `unflushed` is read first, so that no entry flushed in
    between is missed. Closes neither. Thread-safe if both sources are.

    >>> from bkstore.index.memtable import MemtableIndex
    >>> unflushed, flushed = MemtableIndex(), MemtableIndex()
    >>> flushed.put_many(7, [0, 1, 2], [9, 9, 9])
    >>> unflushed.put_many(7, [2, 3], [9, 9])
    >>> LayeredSource(unflushed, flushed).entries(7).tolist()
    [0, 1, 2, 3]
    """

    def __init__(self, unflushed: EntrySource, flushed: EntrySource) -> None:
        self.unflushed = unflushed
        self.flushed = flushed

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Inherited."""
        return sorted({*self.unflushed.ledgers(scope), *self.flushed.ledgers(scope)})

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the distinct entry ids of both layers, the unflushed one in memory and the flushed
        one on disk. O(n) if the unflushed ids are the higher ones, as usual, else O(n log n)."""
        unflushed = self.unflushed.entries(ledger, first, last)
        flushed = self.flushed.entries(ledger, first, last)
        if not unflushed.size or not flushed.size:
            return unflushed if unflushed.size else flushed
        merged = np.concatenate((flushed, unflushed))
        if unflushed[0] > flushed[-1]:
            return merged
        merged.sort(kind="stable")
        return merged[np.concatenate(([True], merged[1:] != merged[:-1]))]

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id of both; BookKeeper ignores `flushed` if `unflushed` has
        entries of the ledger."""
        last_entries = (self.unflushed.last_entry(ledger), self.flushed.last_entry(ledger))
        return max((entry for entry in last_entries if entry is not None), default=None)

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return the union of both availabilities; adds O(sequence groups) to their cost."""
        return self.unflushed.availability(ledger) | self.flushed.availability(ledger)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Listing:
        """Return the unions for many ledgers; `unflushed` is read first, as for one ledger."""
        return self._list_chunks(self._ledgers_to_list(ledgers), errors)

    def _list_chunks(self, ledger_ids: list[LedgerId], errors: LedgerErrors | None) -> Listing:
        """Yield each ledger's entries of both layers, united; an error of either is the ledger's
        result."""
        for start in range(0, len(ledger_ids), _LEDGERS_PER_CHUNK):
            chunk = ledger_ids[start : start + _LEDGERS_PER_CHUNK]
            unflushed_sets = list(iterate_results(self.unflushed, chunk))
            flushed_sets = iterate_results(self.flushed, chunk)
            for (ledger_id, unflushed), (_, flushed) in zip(unflushed_sets, flushed_sets):
                if isinstance(unflushed, BkstoreError):
                    yield from yield_or_record_error(ledger_id, unflushed, errors)
                elif isinstance(flushed, BkstoreError) or not unflushed:  # nothing to unite
                    yield from yield_or_record_error(ledger_id, flushed, errors)
                else:
                    yield ledger_id, unflushed | flushed
