"""Listing unflushed index pages as the real storage does, behind ``compat="bookkeeper"``."""

from __future__ import annotations

import os

from bkstore.formats.idxfile import HEADER_SIZE
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike
from bkstore.index.hierarchical import HierarchicalIndex


class PagewisePending(EntrySource):
    """Locations in memory over index files, listed page by page with an exclusive upper bound.

    `IndexInMemPageMgr.PageEntriesIterableImpl` visits pages while their first entry is *below*
    the highest entry in memory: where that is 0, 1024, 2048, ... and its page is not in the
    file yet, it is left out.
    """

    def __init__(self, pending: EntrySource, index: HierarchicalIndex, page_size: int) -> None:
        self._pending = pending
        self._index = index
        self._page_size = page_size

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers with entries in memory."""
        return self._pending.ledgers(scope)

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entries in memory, without the one that the real listing misses."""
        found = self._pending.entries(ledger, first, last)
        if found.size and self._is_missed(LedgerId.of(ledger), int(found[-1])):
            return found[:-1]
        return found

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry in memory, listed or not."""
        return self._pending.last_entry(ledger)

    def _is_missed(self, name: LedgerId, highest: int) -> bool:
        slots = self._page_size // 8
        if highest % slots or highest != self._pending.last_entry(name):
            return False
        path = self._index.path(name)
        size = os.path.getsize(path) - HEADER_SIZE if path and os.path.exists(path) else 0
        return highest >= slots * (size // self._page_size)
