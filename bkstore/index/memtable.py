"""MemtableIndex: an index in memory, with a memtable's rule that the first of equals wins.

Two levels: a `SortedDict` of ledgers, and per ledger a table that takes entries in any order
and sorts when it is read. A flat sorted map of (scope, ledger, entry), which is what
BookKeeper's `EntryMemTable` is, costs several times more to fill and to walk (measured:
`python -m tools.bench`, row "memtable").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import RLock

import numpy as np
from sortedcontainers import SortedDict

from bkstore.availability import Availability
from bkstore.availability.many_sets import sets_of_entries
from bkstore.errors import IllegalOperation, NoSuchLedger
from bkstore.ids import (
    MAX_ENTRY_ID,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    check_bounds,
    check_entry_id,
    check_location,
    check_scope,
)
from bkstore.index.api import (
    EntryIndex,
    LedgerLike,
    LedgerState,
    check_put,
    check_state,
    locations_of,
    sorted_distinct,
)
from bkstore.index.many_ledgers import Errors

_NONE = np.empty(0, np.int64)

_TOGETHER, _SHORT = 256, 1 << 10
"""Ledgers listed together, and how many entries those have that are condensed together."""

_LONGEST_TAIL = 1 << 20
"""Numbers in a tail before they are packed into arrays: what single puts may cost in memory."""


class _Table:
    """The entries of one ledger: sorted arrays, plus what came since they were sorted.

    `tail` takes single puts, entry and location by turns; `pending` takes whole arrays. Both
    are merged at the next read. The tail is one list for good, filled by one `extend` a put
    and emptied by one ``del``: each is a single step, so no put needs a lock or gets lost.
    """

    __slots__ = ("entries", "locations", "pending", "state", "tail")

    def __init__(self) -> None:
        self.entries = _NONE
        self.locations = _NONE
        self.pending: list[tuple[Int64Array, Int64Array]] = []
        self.tail: list[int] = []
        self.state = LedgerState()

    def seal_tail(self) -> None:
        """Move single puts behind the arrays that came before them. Under the index's lock."""
        size = len(self.tail)
        if size:
            pairs = np.fromiter(self.tail[:size], np.int64, size).reshape(-1, 2)
            del self.tail[:size]
            self.pending.append((pairs[:, 0].copy(), pairs[:, 1].copy()))

    def merged(self) -> tuple[Int64Array, Int64Array]:
        """Return sorted, distinct entries and their locations; O(1) if nothing came since."""
        self.seal_tail()
        if self.pending:
            parts = [(self.entries, self.locations), *self.pending]
            entries = np.concatenate([part[0] for part in parts])
            locations = np.concatenate([part[1] for part in parts])
            entries, locations = sorted_distinct(entries, locations, "first")
            self.entries, self.locations, self.pending = entries, locations, []
            entries.flags.writeable = locations.flags.writeable = False
        return self.entries, self.locations


class MemtableIndex(EntryIndex):
    """An index held in memory; the first put of an entry wins, as in `EntryMemTable`.

    `put` appends to a list; `put_many` appends an array. The next read of a ledger merges
    and sorts what came since (O(n log n) in the new entries, O(n) when they came in order).
    Memory: 16 bytes an entry once merged. Threads: all calls are safe beside each other; single
    puts take no lock. Fork: the child has its own copy.

    >>> with MemtableIndex() as index:
    ...     index.put(7, 0, 1028)
    ...     index.put(7, 0, 4096)
    ...     index.get(7, 0)
    1028
    """

    layout = "memtable"
    duplicates = "first"
    durable = False

    def __init__(self) -> None:
        self._tables: SortedDict[LedgerId, _Table] = SortedDict()
        self._by_name: dict[LedgerLike, _Table] = {}  # as callers say it: int or LedgerId
        self._lock = RLock()
        self._closed = False

    @property
    def writable(self) -> bool:
        """Always."""
        return True

    def _find(self, ledger: LedgerLike) -> _Table | None:
        self._check_open()
        return self._tables.get(LedgerId.of(ledger))

    def _make(self, ledger: LedgerLike) -> _Table:
        with self._lock:
            self._check_open()
            found = self._tables.setdefault(LedgerId.of(ledger), _Table())
            self._by_name[ledger] = found
            return found

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalOperation("this memtable is closed")

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store one location unless the entry has one; about 0.3 us."""
        kind = type(ledger)
        plain = (kind is int or kind is LedgerId) and type(entry) is type(location) is int
        if not (plain and 0 <= entry <= MAX_ENTRY_ID and 0 < location < 1 << 63):
            ledger = LedgerId.of(ledger)
            entry, location = check_entry_id(entry), check_location(location)
        table = self._by_name.get(ledger) or self._make(ledger)
        table.tail.extend((entry, location))
        if len(table.tail) >= _LONGEST_TAIL:
            with self._lock:
                table.seal_tail()

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Append a batch: one copy, sorted at the next read."""
        ids, places = check_put(entries, locations)
        with self._lock:
            table = self._find(ledger) or self._make(ledger)
            table.seal_tail()
            if ids.size:
                table.pending.append((ids.copy(), places.copy()))

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return locations, 0 where absent; one binary search an entry."""
        wanted = as_entry_ids(entries)
        ids, places = self.items(ledger)
        return locations_of(wanted, ids, places)

    def items(
        self, ledger: LedgerLike, first: int = 0, last: int | None = None
    ) -> tuple[Int64Array, Int64Array]:
        """Return (entries, locations), views of the merged arrays."""
        first, last = check_bounds(first, last)
        with self._lock:
            table = self._find(ledger)
            if table is None:
                return _NONE, _NONE
            ids, places = table.merged()
        lo = np.searchsorted(ids, first)
        hi = np.searchsorted(ids, last, "right")
        return ids[lo:hi], places[lo:hi]

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here. O(entries) after a put, as nothing is kept."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers; short ones are condensed together."""
        self._check_open()
        return self._listed(self._names_asked(ledgers))

    def _listed(self, names: list[LedgerId]) -> Iterator[tuple[LedgerId, Availability]]:
        for at in range(0, len(names), _TOGETHER):
            part = names[at : at + _TOGETHER]
            entries = [self.entries(name) for name in part]
            short = [ids if ids.size <= _SHORT else _NONE for ids in entries]
            for name, ids, found in zip(part, entries, sets_of_entries(short)):
                yield name, found if ids.size <= _SHORT else Availability.from_entries(ids)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Inherited."""
        scope = check_scope(scope)
        with self._lock:
            self._check_open()
            if scope is None:
                return list(self._tables)
            return [name for name in self._tables if name.scope == scope]

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Inherited."""
        with self._lock:
            table = self._find(ledger)
            if table is None:
                raise NoSuchLedger(f"ledger {LedgerId.of(ledger)} is not in this memtable")
            return table.state

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Inherited."""
        check_state(state)
        with self._lock:
            (self._find(ledger) or self._make(ledger)).state = state

    def delete(self, ledger: LedgerLike) -> None:
        """Inherited."""
        with self._lock:
            self._check_open()
            name = LedgerId.of(ledger)
            if self._tables.pop(name, None) is not None:
                for said in (name, name.ledger) if name.scope == 0 else (name,):
                    self._by_name.pop(said, None)

    def flush(self) -> None:
        """Nothing to do: a memtable is not durable."""

    def close(self) -> None:
        """Drop everything; a later call raises `IllegalOperation`. Idempotent."""
        with self._lock:
            self._closed = True
            self._tables.clear()
            self._by_name.clear()
