"""Pending: values by ledger and entry, in memory until a flush.

Single values go into a dict of their ledger, which takes a put in a tenth of the time of a sorted
map. A batch of ascending ids above all others is kept as a run over its arrays: a few microseconds
and some 30 bytes an entry, and ready for a flush.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

import numpy as np

from bkstore.ids import (
    EntryLocations,
    Int64Array,
    LedgerId,
    check_bounds,
    check_scope,
    is_ascending,
)
from bkstore.index.api import EntrySource, LedgerLike, locations_of, sorted_distinct

_T = TypeVar("_T")

MIN_RUN_ENTRIES = 16
"""Smaller batches are stored entry by entry: a run of their own would cost more."""

_NO_ENTRIES = np.empty(0, np.int64)


class EntryRun(Generic[_T]):
    """Values of ascending entry ids, as immutable arrays."""

    def __init__(self, entry_ids: Int64Array) -> None:
        self.entry_ids = entry_ids
        self.first, self.last = int(entry_ids[0]), int(entry_ids[-1])
        self.is_dense = self.last - self.first + 1 == entry_ids.size

    def __len__(self) -> int:
        return int(self.entry_ids.size)

    @abstractmethod
    def value_at(self, index: int) -> _T:
        """Return the value at index `index`."""

    def find_index(self, entry_id: int) -> int | None:
        """Return the index of an entry's value, None if the entry is absent."""
        if not self.first <= entry_id <= self.last:
            return None
        if self.is_dense:
            return entry_id - self.first
        index = int(self.entry_ids.searchsorted(entry_id))
        return index if self.entry_ids[index] == entry_id else None

    def find_slice(self, first: int, last: int | None) -> slice:
        """Return the slice of the ids first..last."""
        if self.is_dense:
            stop = None if last is None else max(last - self.first + 1, 0)
            return slice(max(first - self.first, 0), stop)
        stop = None if last is None else int(self.entry_ids.searchsorted(last, "right"))
        return slice(int(self.entry_ids.searchsorted(first)), stop)


class LedgerValues(Generic[_T]):
    """The values of one ledger; a single value takes precedence over a run's. Readers need no lock:
    a run is appended to `runs` before its first id is to `run_starts`."""

    __slots__ = (
        "hidden_run_values",
        "highest",
        "is_ordered",
        "lowest",
        "run_starts",
        "runs",
        "values",
    )

    def __init__(self, first: int) -> None:
        """Make the values of a ledger, whose first entry is `first`."""
        self.values: dict[int, _T] = {}
        self.runs: list[EntryRun[_T]] = []
        self.run_starts: list[int] = []
        self.lowest = first
        self.highest = -1
        self.is_ordered = True
        """Whether the single values came in ascending order."""
        self.hidden_run_values = 0
        """Number of values in runs that a single value of the same entry replaces."""

    def append(self, run: EntryRun[_T]) -> None:
        """Add a run of ids that are all above the highest."""
        self.runs.append(run)
        self.run_starts.append(run.first)
        self.highest = run.last

    def replace(self, entry_id: int, value: _T) -> None:
        """Replace the value of an entry that is present, as a single value or in a run. A run is
        immutable: it keeps the old value, which the new single value hides."""
        if entry_id not in self.values:  # it is in a run
            self.hidden_run_values += 1
            self.is_ordered = False  # single values of higher ids may have come before it
        self.values[entry_id] = value

    def get(self, entry_id: int) -> _T | None:
        """Return one value, None if the entry is absent."""
        value = self.values.get(entry_id)
        if value is None and self.run_starts:
            return self.get_from_runs(entry_id)
        return value

    def get_from_runs(self, entry_id: int) -> _T | None:
        """Return an entry's value from the runs, None if no run has it."""
        run_index = bisect_right(self.run_starts, entry_id) - 1
        if run_index < 0:
            return None
        value_index = self.runs[run_index].find_index(entry_id)
        return None if value_index is None else self.runs[run_index].value_at(value_index)

    def count(self) -> int:
        """Return the number of entries."""
        return len(self.values) + sum(map(len, self.runs)) - self.hidden_run_values

    def list_single_ids(self, first: int = 0, last: int | None = None) -> list[int]:
        """Return the sorted ids of first..last that are stored as single values. Visits the ids of
        the range or all stored ids, whichever are fewer."""
        candidates = self._clamp_range(first, last)
        if len(candidates) < len(self.values):
            return list(filter(self.values.__contains__, candidates))
        ids = list(self.values)  # atomic: other threads may add
        if not self.is_ordered:
            ids.sort()
        return ids[bisect_left(ids, first) : len(ids) if last is None else bisect_right(ids, last)]

    def _clamp_range(self, first: int, last: int | None) -> range:
        """Return the part of first..last that lies within lowest..highest."""
        stop = self.highest if last is None else min(last, self.highest)
        return range(max(first, self.lowest), stop + 1)

    def find_runs(self, first: int, last: int | None) -> list[tuple[EntryRun[_T], slice]]:
        """Return the runs that have ids of first..last, each with the slice of those ids."""
        start = max(bisect_right(self.run_starts, first) - 1, 0)
        stop = len(self.run_starts) if last is None else bisect_right(self.run_starts, last)
        candidates = [(run, run.find_slice(first, last)) for run in self.runs[start:stop]]
        return [(run, id_slice) for run, id_slice in candidates if run.entry_ids[id_slice].size]

    def list_ids(self, first: int, last: int | None) -> Int64Array:
        """Return the sorted ids of first..last, a copy."""
        ids_of_runs = [run.entry_ids[id_slice] for run, id_slice in self.find_runs(first, last)]
        single_ids = self.list_single_ids(first, last)
        if not ids_of_runs:
            return np.array(single_ids, np.int64)
        if single_ids:
            return np.unique(np.concatenate([np.array(single_ids, np.int64), *ids_of_runs]))
        return np.concatenate(ids_of_runs)  # copies even a single array: the caller may change it

    def find_first(self, first: int, last: int) -> int | None:
        """Return the lowest id of first..last that is present, None if there is none."""
        candidates = self._clamp_range(first, last)
        single_ids = filter(self.values.__contains__, candidates) if self.values else iter(())
        lowest_single = next(single_ids, None)
        stop = last if lowest_single is None else lowest_single
        for run, id_slice in self.find_runs(first, stop):  # only the first run matters
            return int(run.entry_ids[id_slice][0])
        return lowest_single

    def ids_and_runs(self) -> Iterator[tuple[list[int], EntryRun[_T] | None]]:
        """Yield (ids of single values, run or None), in ascending order of ids. A run has the
        values of many ascending ids; the single ids are within its range, or between two runs if it
        is None."""
        single_ids, start = self.list_single_ids(), 0
        for run in self.runs:
            run_start = bisect_left(single_ids, run.first, start)
            if run_start > start:
                yield single_ids[start:run_start], None
            start = bisect_right(single_ids, run.last, run_start)
            yield single_ids[run_start:start], run
        if start < len(single_ids):
            yield single_ids[start:], None


class PendingValues(EntrySource, Generic[_T]):
    """Values by ledger and entry, in memory; `duplicates` says which of equal entries stays.
    Threads: one writer; concurrent readers see each put completely or not at all."""

    def __init__(self, duplicates: Literal["first", "last"]) -> None:
        self.duplicates = duplicates
        self.count = 0
        self._tables: dict[LedgerId, LedgerValues[_T]] = {}

    def __len__(self) -> int:
        return self.count

    def _find_or_make_table(self, ledger_id: LedgerId, first: int) -> LedgerValues[_T]:
        """Return the ledger's table; create it with lowest id `first` if there is none."""
        table = self._tables.get(ledger_id)
        return table or self._tables.setdefault(ledger_id, LedgerValues(first))

    def put(self, ledger_id: LedgerId, entry_id: int, value: _T) -> bool:
        """Store one value; return whether the entry is new. For one that has a value, `duplicates`
        says which stays: the "first" or the "last"."""
        table = self._tables.get(ledger_id) or self._find_or_make_table(ledger_id, entry_id)
        # Most entries come in ascending order, so that no look-up is needed.
        if entry_id > table.highest:
            table.highest = entry_id
        elif table.get(entry_id) is not None:
            if self.duplicates == "last":
                table.replace(entry_id, value)
            return False
        else:  # a new entry that comes late
            table.is_ordered = False
            table.lowest = min(table.lowest, entry_id)
        table.values[entry_id] = value
        self.count += 1
        return True

    def put_run(self, ledger_id: LedgerId, run: EntryRun[_T]) -> None:
        """Store the values of a run, which has many ascending ids: as a whole if it is long and all
        its ids are above those present, else one by one."""
        table = self._find_or_make_table(ledger_id, run.first)
        if len(run) < MIN_RUN_ENTRIES or run.first <= table.highest:
            for index, entry in enumerate(run.entry_ids.tolist()):
                self.put(ledger_id, entry, run.value_at(index))
        else:
            table.append(run)
            self.count += len(run)

    def get(self, ledger_id: LedgerId, entry_id: int) -> _T | None:
        """Return one value, None if the entry is absent."""
        table = self._tables.get(ledger_id)
        return None if table is None else table.get(entry_id)

    def find_first(self, ledger_id: LedgerId, first: int, last: int) -> int | None:
        """Return the lowest id of first..last that is present, None if there is none."""
        table = self._tables.get(ledger_id)
        return None if table is None else table.find_first(first, last)

    def drop(self, ledger_id: LedgerId) -> None:
        """Drop a ledger's values."""
        table = self._tables.pop(ledger_id, None)
        if table is not None:
            self.count -= table.count()

    # -- as an entry source

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers that have pending values, sorted; if a `scope` (the upper half of a
        ledger id) is given, only those of it."""
        scope = check_scope(scope)
        return sorted(
            ledger_id
            for ledger_id, table in list(self._tables.items())
            if table.highest >= 0 and (scope is None or ledger_id.scope == scope)
        )

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the sorted ids of first..last: O(last - first), or O(n) if that is less; in that
        case ids that arrived out of order are sorted."""
        first, last = check_bounds(first, last)
        table = self._tables.get(LedgerId.of(ledger))
        return _NO_ENTRIES if table is None else table.list_ids(first, last)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest id, None if there is none. O(1)."""
        table = self._tables.get(LedgerId.of(ledger))
        return None if table is None or table.highest < 0 else table.highest


class _LocationRun(EntryRun[int]):
    """Locations of ascending entries."""

    def __init__(self, entry_ids: Int64Array, locations: Int64Array) -> None:
        super().__init__(entry_ids)
        self.locations = locations

    def value_at(self, index: int) -> int:
        return int(self.locations[index])


class PendingLocations(PendingValues[int]):
    """Locations of entries whose index pages are not written yet; the last of equal ones stays.

    They take the place of the pages that BookKeeper's interleaved storage keeps in memory
    (`IndexInMemPageMgr`). Memory: 16 bytes an entry of a batch, about 150 a single entry.

    >>> pending, name = PendingLocations(), LedgerId(ledger=7)
    >>> pending.put(name, 3, 1028), pending.put(name, 3, 2000)
    (True, False)
    >>> pending.get(name, 3), pending.entries(7).tolist()
    (2000, [3])
    """

    def __init__(self) -> None:
        super().__init__("last")

    def put_many(self, ledger_id: LedgerId, entry_ids: Int64Array, locations: Int64Array) -> None:
        """Store locations, in this order: int64[n] each, which must not change later."""
        if entry_ids.size >= MIN_RUN_ENTRIES and is_ascending(entry_ids):
            self.put_run(ledger_id, _LocationRun(entry_ids, locations))
        else:
            for entry, location in zip(entry_ids.tolist(), locations.tolist()):
                self.put(ledger_id, entry, location)

    def items(self, ledger_id: LedgerId, first: int, last: int | None) -> EntryLocations:
        """Return (entries, locations) of the ledger's pending entries in first..last (None: no
        upper limit), sorted by entry. Cost: as `entries`."""
        table = self._tables.get(ledger_id)
        if table is None:
            return _NO_ENTRIES, _NO_ENTRIES
        single_ids = table.list_single_ids(first, last)
        row_blocks = [(np.array(single_ids, np.int64), _values_of(table, single_ids))]
        for run, id_slice in table.find_runs(first, last):
            assert isinstance(run, _LocationRun)
            row_blocks.append((run.entry_ids[id_slice], run.locations[id_slice]))
        return merge_locations(row_blocks)

    def get_many(self, ledger_id: LedgerId, entry_ids: Int64Array) -> Int64Array:
        """Return the locations of these entries, 0 for absent ones."""
        if not entry_ids.size or ledger_id not in self._tables:
            return np.zeros(entry_ids.size, np.int64)
        rows = self.items(ledger_id, int(entry_ids.min()), int(entry_ids.max()))
        return locations_of(entry_ids, *rows)

    def by_ledger(self) -> Iterator[tuple[LedgerId, Int64Array, Int64Array]]:
        """Yield (ledger, sorted entry ids, their locations), ledgers in unsigned order."""
        for ledger_id in sorted(self._tables):
            yield ledger_id, *self.items(ledger_id, 0, None)


def _values_of(table: LedgerValues[int], ids: list[int]) -> Int64Array:
    return np.fromiter(map(table.values.__getitem__, ids), np.int64, len(ids))


def merge_locations(row_blocks: list[EntryLocations]) -> EntryLocations:
    """Return (entries, locations) of all parts, sorted; of equal entries the first stays."""
    entries, locations = (np.concatenate(columns) for columns in zip(*row_blocks))
    return sorted_distinct(entries, locations, "first")
