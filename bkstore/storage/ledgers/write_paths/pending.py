"""Pending: values by ledger and entry, in memory until a flush.

Two ways in, one answer: single values go into a dict of their ledger, batches of ascending ids
beyond all others stay what they are, as runs over their arrays. So a batch costs a few
microseconds and some 30 bytes an entry, and a flush finds arrays; a dict of a ledger's entries
takes a single put in a tenth of the time of a sorted map, and ids that came in order need no
sorting later.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

import numpy as np

from bkstore.ids import Int64Array, LedgerId, check_bounds, check_scope, is_ascending
from bkstore.index.api import EntrySource, LedgerLike, locations_of, sorted_distinct

_T = TypeVar("_T")

FEWEST = 16
"""Entries below which a batch is kept one by one: a run of its own would cost more."""

_NONE = np.empty(0, np.int64)


class Run(Generic[_T]):
    """Values of ascending entry ids, as arrays that nobody changes."""

    def __init__(self, entries: Int64Array) -> None:
        self.entries = entries
        self.first, self.last = int(entries[0]), int(entries[-1])
        self.dense = self.last - self.first + 1 == entries.size

    def __len__(self) -> int:
        return int(self.entries.size)

    @abstractmethod
    def value(self, at: int) -> _T:
        """Return value number `at`."""

    def place(self, entry: int) -> int | None:
        """Return the number of an entry's value, None if it is not here."""
        if not self.first <= entry <= self.last:
            return None
        if self.dense:
            return entry - self.first
        at = int(self.entries.searchsorted(entry))
        return at if self.entries[at] == entry else None

    def span(self, first: int, last: int | None) -> slice:
        """Return where the ids first..last stand."""
        low, high = max(first - self.first, 0), None if last is None else last - self.first + 1
        if self.dense:
            return slice(low, None if high is None else max(high, 0))
        stop = None if last is None else int(self.entries.searchsorted(last, "right"))
        return slice(int(self.entries.searchsorted(first)), stop)


class Table(Generic[_T]):
    """The values of one ledger; a single value goes before that of a run.

    Readers need no lock: `firsts` is told of a run after `runs` has it.
    """

    __slots__ = ("firsts", "highest", "in_order", "lowest", "replaced", "runs", "values")

    def __init__(self, first: int) -> None:
        self.values: dict[int, _T] = {}
        self.runs: list[Run[_T]] = []
        self.firsts: list[int] = []
        self.lowest = first
        self.highest = -1
        self.in_order = True
        """Whether the single values came in ascending order."""
        self.replaced = 0
        """Values of runs before which a single one goes."""

    def append(self, run: Run[_T]) -> None:
        """Add a run of ids that are all above the highest."""
        self.runs.append(run)
        self.firsts.append(run.first)
        self.highest = run.last

    def replace(self, entry: int, value: _T) -> None:
        """Put another value in the place of one that is here."""
        if entry not in self.values:
            self.replaced += 1
            self.in_order = False
        self.values[entry] = value

    def get(self, entry: int) -> _T | None:
        """Return one value, None if the entry is not here."""
        value = self.values.get(entry)
        if value is None and self.firsts:
            return self.in_run(entry)
        return value

    def in_run(self, entry: int) -> _T | None:
        """Return the value that a run has, None if none has the entry."""
        at = bisect_right(self.firsts, entry) - 1
        if at < 0:
            return None
        place = self.runs[at].place(entry)
        return None if place is None else self.runs[at].value(place)

    def count(self) -> int:
        """Return how many entries are here."""
        return len(self.values) + sum(map(len, self.runs)) - self.replaced

    def single_ids(self, first: int = 0, last: int | None = None) -> list[int]:
        """Return the sorted ids of first..last that came one by one.

        Looks at those or at all, whichever are fewer.
        """
        wanted = self._clamped(first, last)
        if len(wanted) < len(self.values):
            return list(filter(self.values.__contains__, wanted))
        ids = list(self.values)  # one step for other threads
        if not self.in_order:
            ids.sort()
        return ids[bisect_left(ids, first) : len(ids) if last is None else bisect_right(ids, last)]

    def _clamped(self, first: int, last: int | None) -> range:
        """Return the ids of first..last that may be here."""
        stop = self.highest if last is None else min(last, self.highest)
        return range(max(first, self.lowest), stop + 1)

    def runs_in(self, first: int, last: int | None) -> list[tuple[Run[_T], slice]]:
        """Return the runs that have ids of first..last, and where in them those stand."""
        start = max(bisect_right(self.firsts, first) - 1, 0)
        stop = len(self.firsts) if last is None else bisect_right(self.firsts, last)
        found = [(run, run.span(first, last)) for run in self.runs[start:stop]]
        return [(run, part) for run, part in found if run.entries[part].size]

    def ids_in(self, first: int, last: int | None) -> Int64Array:
        """Return the sorted ids of first..last, a copy."""
        parts = [run.entries[part] for run, part in self.runs_in(first, last)]
        single = self.single_ids(first, last)
        if not parts:
            return np.array(single, np.int64)
        if single:
            return np.unique(np.concatenate([np.array(single, np.int64), *parts]))
        return np.concatenate(parts)  # a copy of one, too: the caller may change it

    def first_in(self, first: int, last: int) -> int | None:
        """Return the lowest id here of first..last, None if there is none."""
        wanted = self._clamped(first, last)
        single = next(filter(self.values.__contains__, wanted), None) if self.values else None
        for run, part in self.runs_in(first, last if single is None else single):
            return int(run.entries[part][0])
        return single

    def pieces(self) -> Iterator[tuple[list[int], Run[_T] | None]]:
        """Yield the ids here in ascending order, piece by piece.

        A piece is the ids of single values, and a run among whose ids they lie, None if in none.
        """
        ids, at = self.single_ids(), 0
        for run in self.runs:
            before = bisect_left(ids, run.first, at)
            if before > at:
                yield ids[at:before], None
            at = bisect_right(ids, run.last, before)
            yield ids[before:at], run
        if at < len(ids):
            yield ids[at:], None


class Pending(EntrySource, Generic[_T]):
    """Values by ledger and entry, in memory; `duplicates` says which of equal entries stays.

    One writer; readers beside it see each put whole. `PendingLocations` and `WriteCache` are the
    two kinds.
    """

    def __init__(self, duplicates: Literal["first", "last"]) -> None:
        self.duplicates = duplicates
        self.count = 0
        self._tables: dict[LedgerId, Table[_T]] = {}

    def __len__(self) -> int:
        return self.count

    def _table(self, name: LedgerId, first: int) -> Table[_T]:
        return self._tables.get(name) or self._tables.setdefault(name, Table(first))

    def put(self, name: LedgerId, entry: int, value: _T) -> bool:
        """Store one value; return whether the entry is new here."""
        table = self._tables.get(name) or self._table(name, entry)
        if entry > table.highest:
            table.highest = entry
        elif entry in table.values or (table.firsts and table.in_run(entry) is not None):
            if self.duplicates == "last":
                table.replace(entry, value)
            return False
        else:
            table.in_order = False
            table.lowest = min(table.lowest, entry)
        table.values[entry] = value
        self.count += 1
        return True

    def put_run(self, name: LedgerId, run: Run[_T]) -> None:
        """Store the values of a run; one by one where ids are not above all that are here."""
        table = self._table(name, run.first)
        if len(run) < FEWEST or run.first <= table.highest:
            for at, entry in enumerate(run.entries.tolist()):
                self.put(name, entry, run.value(at))
        else:
            table.append(run)
            self.count += len(run)

    def get(self, name: LedgerId, entry: int) -> _T | None:
        """Return one value, None if the entry is not here."""
        table = self._tables.get(name)
        return None if table is None else table.get(entry)

    def first_in(self, name: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest id here of first..last, None if there is none."""
        table = self._tables.get(name)
        return None if table is None else table.first_in(first, last)

    def drop(self, name: LedgerId) -> None:
        """Forget a ledger's values."""
        table = self._tables.pop(name, None)
        if table is not None:
            self.count -= table.count()

    # -- as an entry source

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Inherited."""
        scope = check_scope(scope)
        return sorted(
            name
            for name, table in list(self._tables.items())
            if table.highest >= 0 and (scope is None or name.scope == scope)
        )

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the ids here: O(last - first), or O(n) if that is less.

        With a sort in the second case, where they did not come in order.
        """
        first, last = check_bounds(first, last)
        table = self._tables.get(LedgerId.of(ledger))
        return _NONE if table is None else table.ids_in(first, last)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest id here, None if there is none. O(1)."""
        table = self._tables.get(LedgerId.of(ledger))
        return None if table is None or table.highest < 0 else table.highest


class _Locations(Run[int]):
    """Locations of ascending entries."""

    def __init__(self, entries: Int64Array, locations: Int64Array) -> None:
        super().__init__(entries)
        self.locations = locations

    def value(self, at: int) -> int:
        return int(self.locations[at])


class PendingLocations(Pending[int]):
    """Locations of entries whose index pages are not written yet; the last of equal ones stays.

    They stand for the pages that BookKeeper's interleaved storage keeps in memory
    (`IndexInMemPageMgr`). Memory: 16 bytes an entry of a batch, about 150 of one that came alone.

    >>> pending, name = PendingLocations(), LedgerId(ledger=7)
    >>> pending.put(name, 3, 1028), pending.put(name, 3, 2000)
    (True, False)
    >>> pending.get(name, 3), pending.entries(7).tolist()
    (2000, [3])
    """

    def __init__(self) -> None:
        super().__init__("last")

    def put_many(self, name: LedgerId, entries: Int64Array, locations: Int64Array) -> None:
        """Store locations, in this order: int64[n] each, which nobody may change later."""
        if entries.size >= FEWEST and is_ascending(entries):
            self.put_run(name, _Locations(entries, locations))
        else:
            for entry, location in zip(entries.tolist(), locations.tolist()):
                self.put(name, entry, location)

    def items(self, name: LedgerId, first: int, last: int | None) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations) of first..last, sorted. Cost: as `entries`."""
        table = self._tables.get(name)
        if table is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        single = table.single_ids(first, last)
        parts = [(np.array(single, np.int64), _values(table, single))]
        for run, part in table.runs_in(first, last):
            assert isinstance(run, _Locations)
            parts.append((run.entries[part], run.locations[part]))
        return merged(parts)

    def get_many(self, name: LedgerId, entries: Int64Array) -> Int64Array:
        """Return the locations of these entries, 0 where there is none."""
        if not entries.size or name not in self._tables:
            return np.zeros(entries.size, np.int64)
        return locations_of(entries, *self.items(name, int(entries.min()), int(entries.max())))

    def tables(self) -> Iterator[tuple[LedgerId, Int64Array, Int64Array]]:
        """Yield (ledger, sorted entry ids, their locations), ledgers in unsigned order."""
        for name in sorted(self._tables):
            yield name, *self.items(name, 0, None)


def _values(table: Table[int], ids: list[int]) -> Int64Array:
    return np.fromiter(map(table.values.__getitem__, ids), np.int64, len(ids))


def merged(parts: list[tuple[Int64Array, Int64Array]]) -> tuple[Int64Array, Int64Array]:
    """Return (entries, locations) of all parts by entry; of equal ones the first stays."""
    entries, locations = (np.concatenate(columns) for columns in zip(*parts))
    return sorted_distinct(entries, locations, "first")
