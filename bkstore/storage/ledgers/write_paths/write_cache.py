"""Unflushed entries: what a storage holds in memory before it is in index and entry log.

`Pending` keeps values by ledger and entry and answers as an `EntrySource`; the interleaved
storage keeps locations in one (its index pages in memory). `WriteCache` is a `Pending` of
records with a byte limit, under one of the two rules of upstream: the skip list of sorted
storage keeps the *first* of equal entries (`EntryMemTable`), the write cache of db storage the
*last* (`storage/ldb/WriteCache`).

A flat skip list or an arena would buy nothing here: a dict of a ledger's entries takes a put in
a tenth of the time of a sorted map, and ids that came in order need no sorting later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import takewhile
from typing import Generic, Literal, TypeVar

import numpy as np

from bkstore.ids import Int64Array, LedgerId, check_bounds, check_scope
from bkstore.index.api import EntrySource, LedgerLike

__all__ = ["ENTRY_OVERHEAD", "Pending", "WriteCache"]

T = TypeVar("T")

ENTRY_OVERHEAD = 150
"""Bytes that an entry costs beside its record: objects and a dict slot, as measured."""

_NONE = np.empty(0, np.int64)


class _Table(Generic[T]):
    """The values of one ledger, and whether their ids came in ascending order."""

    __slots__ = ("highest", "in_order", "lowest", "values")

    def __init__(self, first: int) -> None:
        self.values: dict[int, T] = {}
        self.lowest = first
        self.highest = -1
        self.in_order = True

    def clamped(self, first: int, last: int | None) -> range:
        """Return the ids of first..last that may be here."""
        stop = self.highest if last is None else min(last, self.highest)
        return range(max(first, self.lowest), stop + 1)

    def ids_in(self, first: int, last: int | None) -> list[int]:
        """Return the sorted ids of first..last; looks at those or at all, whichever are fewer."""
        wanted = self.clamped(first, last)
        if len(wanted) < len(self.values):
            return list(filter(self.values.__contains__, wanted))
        ids = self.ids()
        return ids[bisect_left(ids, first) : len(ids) if last is None else bisect_right(ids, last)]

    def ids(self) -> list[int]:
        found = list(self.values)  # one step for other threads
        return found if self.in_order else sorted(found)


class Pending(EntrySource, Generic[T]):
    """Values by ledger and entry, in memory; `duplicates` says which of equal entries stays.

    One writer; readers beside it see each put whole. Memory: about `ENTRY_OVERHEAD` bytes an
    entry beside the values.

    >>> pending = Pending[int]("last")
    >>> pending.put(LedgerId(ledger=7), 3, 1028), pending.put(LedgerId(ledger=7), 3, 2000)
    (True, False)
    >>> pending.get(LedgerId(ledger=7), 3), pending.entries(7).tolist()
    (2000, [3])
    """

    def __init__(self, duplicates: Literal["first", "last"]) -> None:
        self.duplicates = duplicates
        self.count = 0
        self._tables: dict[LedgerId, _Table[T]] = {}

    def __len__(self) -> int:
        return self.count

    def put(self, name: LedgerId, entry: int, value: T) -> bool:
        """Store one value; return whether the entry is new here."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables.setdefault(name, _Table(entry))
        values = table.values
        if entry > table.highest:
            table.highest = entry
        elif entry in values:
            if self.duplicates == "last":
                values[entry] = value
            return False
        else:
            table.in_order = False
            table.lowest = min(table.lowest, entry)
        values[entry] = value
        self.count += 1
        return True

    def get(self, name: LedgerId, entry: int) -> T | None:
        """Return one value, None if the entry is not here."""
        table = self._tables.get(name)
        return None if table is None else table.values.get(entry)

    def get_run(self, name: LedgerId, start: int, count: int) -> list[T]:
        """Return the values of start, start + 1, ... up to the first gap, at most `count`.

        About 50 ns a value.
        """
        table = self._tables.get(name)
        if table is None:
            return []
        values, wanted = table.values, range(start, min(start + count, table.highest + 1))
        try:  # at once, as most runs have no gap
            return list(map(values.__getitem__, wanted))
        except KeyError:
            return [values[entry] for entry in takewhile(values.__contains__, wanted)]

    def first_in(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest id here of first..last, None if there is none."""
        table = self._tables.get(name)
        if table is None or table.highest < first or table.lowest > last:
            return None
        return next(filter(table.values.__contains__, table.clamped(first, last)), None)

    def items(self, name: LedgerId, first: int, last: int) -> tuple[Int64Array, list[T]]:
        """Return (entries, values) of first..last, sorted. Cost: as `entries`."""
        table = self._tables.get(name)
        if table is None:
            return _NONE, []
        ids = table.ids_in(first, last)
        return np.array(ids, np.int64), list(map(table.values.__getitem__, ids))

    def drop(self, name: LedgerId) -> None:
        """Forget a ledger's values."""
        table = self._tables.pop(name, None)
        if table is not None:
            self.count -= len(table.values)

    def tables(self) -> Iterator[tuple[LedgerId, list[int], list[T]]]:
        """Yield (ledger, sorted entry ids, their values), ledgers in unsigned order."""
        for name in sorted(self._tables):
            table = self._tables[name]
            ids = table.ids()
            in_order = table.in_order
            yield (
                name,
                ids,
                list(table.values.values()) if in_order else [table.values[entry] for entry in ids],
            )

    # -- as an entry source

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers that have entries here, in unsigned order."""
        scope = check_scope(scope)
        return sorted(
            name
            for name, table in list(self._tables.items())
            if table.values and (scope is None or name.scope == scope)
        )

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the ids here: O(last - first), or O(n) if that is less.

        With a sort in the second case, where they did not come in order.
        """
        first, last = check_bounds(first, last)
        table = self._tables.get(LedgerId.of(ledger))
        return _NONE if table is None else np.array(table.ids_in(first, last), np.int64)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest id here, None if there is none. O(1)."""
        table = self._tables.get(LedgerId.of(ledger))
        return None if table is None or not table.values else table.highest


class WriteCache(Pending[bytes]):
    """Records that are not flushed yet, up to `limit` bytes (`ENTRY_OVERHEAD` counted in).

    >>> cache = WriteCache("first", 1000)
    >>> cache.put(LedgerId(ledger=7), 0, b"a" * 100), cache.size
    (True, 250)
    >>> cache.fits(800)
    False
    """

    def __init__(self, duplicates: Literal["first", "last"], limit: int) -> None:
        super().__init__(duplicates)
        self.limit = limit
        self.size = 0

    def fits(self, record_size: int) -> bool:
        """Return whether one more record of that size stays within the limit."""
        return self.size + record_size + ENTRY_OVERHEAD <= self.limit

    def put(self, name: LedgerId, entry: int, value: bytes) -> bool:
        """Store one record; return whether the entry is new here.

        Both copies of a replaced one count until the flush, as upstream counts them.
        """
        new = super().put(name, entry, value)
        if new or self.duplicates == "last":
            self.size += len(value) + ENTRY_OVERHEAD
        return new

    def drop(self, name: LedgerId) -> None:
        """Forget a ledger's records; what was replaced counts until nothing is here."""
        table = self._tables.get(name)
        if table is not None:
            self.size -= sum(map(len, table.values.values())) + ENTRY_OVERHEAD * len(table.values)
        super().drop(name)
        if not self.count:
            self.size = 0
