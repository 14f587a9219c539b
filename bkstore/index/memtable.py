"""MemtableIndex: an index in memory; the first put of an entry wins, as in a bookie's memtable. A
`SortedDict` of ledgers, and per ledger a table that takes entries in any order and sorts when it is
read. A flat sorted map of (scope, ledger, entry), like BookKeeper's `EntryMemTable`, costs several
times more to fill and to iterate (`python -m tools.bench`, row "memtable")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import RLock

import numpy as np
from sortedcontainers import SortedDict

from bkstore.availability import Availability
from bkstore.availability.many_sets import sets_from_arrays
from bkstore.errors import IllegalOperation, NoSuchLedger
from bkstore.ids import (
    MAX_ENTRY_ID,
    EntryLocations,
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
from bkstore.index.bulk_listing import LedgerErrors

_NO_ENTRIES = np.empty(0, np.int64)

_LEDGERS_PER_CHUNK, _MAX_SHORT_ENTRIES = 256, 1 << 10
"""Ledgers listed together; the lists of those with at most so many entries become sets in one
call."""

_MAX_TAIL_NUMBERS = 1 << 20
"""Numbers in a tail before they are packed into arrays; bounds the memory of single puts."""


class _Table:
    """The entries of one ledger: sorted arrays, plus the puts since they were sorted. `tail` takes
    single puts, alternating entry and location; `pending` takes whole arrays. Both are merged at
    the next read. The tail is never replaced: each put is one `extend`, and one ``del`` empties it.
    Both are atomic, so no put needs a lock or is lost."""

    __slots__ = ("entries", "locations", "pending", "state", "tail")

    def __init__(self) -> None:
        self.entries = _NO_ENTRIES
        self.locations = _NO_ENTRIES
        self.pending: list[EntryLocations] = []
        self.tail: list[int] = []
        self.state = LedgerState()

    def seal_tail(self) -> None:
        """Move the single puts of `tail` (entry, location, entry, ...) to the end of `pending`, as
        arrays. The caller holds the index's lock; `put` appends to `tail` without it."""
        size = len(self.tail)  # what other threads append from now on stays
        if size:
            pairs = np.fromiter(self.tail[:size], np.int64, size).reshape(-1, 2)
            del self.tail[:size]
            entries, locations = pairs[:, 0].copy(), pairs[:, 1].copy()
            self.pending.append((entries, locations))

    def merged(self) -> EntryLocations:
        """Return sorted, distinct entries and their locations; O(1) if nothing was put since."""
        self.seal_tail()
        if self.pending:
            entry_blocks, location_blocks = zip((self.entries, self.locations), *self.pending)
            entries, locations = np.concatenate(entry_blocks), np.concatenate(location_blocks)
            entries, locations = sorted_distinct(entries, locations, "first")
            self.entries, self.locations, self.pending = entries, locations, []
            entries.flags.writeable = locations.flags.writeable = False
        return self.entries, self.locations


class MemtableIndex(EntryIndex):
    """An index held in memory; the first put of an entry wins, as in `EntryMemTable`.

    The next read of a ledger merges and sorts the new puts (O(n log n) in the new entries, O(n) if
    they were put in order). Memory: 16 bytes an entry once merged. Threads: all calls may run
    concurrently; single puts take no lock. Fork: the child has its own copy.

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
        self._table_of: dict[LedgerLike, _Table] = {}  # keyed as callers pass it: int or LedgerId
        self._lock = RLock()
        self._closed = False

    @property
    def writable(self) -> bool:
        """Always True."""
        return True

    def _find_table(self, ledger: LedgerLike) -> _Table | None:
        self._check_open()
        return self._tables.get(LedgerId.of(ledger))

    def _make_table(self, ledger: LedgerLike) -> _Table:
        """Return the ledger's table, made if it has none."""
        with self._lock:
            self._check_open()
            table = self._tables.setdefault(LedgerId.of(ledger), _Table())
            self._table_of[ledger] = table
            return table

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalOperation("this memtable is closed")

    def put(self, ledger: LedgerLike, entry: int, location: int) -> None:
        """Store one location unless the entry has one; about 0.3 us."""
        # Values that are evidently valid need no check by a call; it would cost more than the put.
        is_typed = type(ledger) in (int, LedgerId) and type(entry) is type(location) is int
        if not (is_typed and 0 <= entry <= MAX_ENTRY_ID and 0 < location < 1 << 63):
            ledger = LedgerId.of(ledger)
            entry, location = check_entry_id(entry), check_location(location)
        table = self._table_of.get(ledger) or self._make_table(ledger)
        table.tail.extend((entry, location))  # atomic, so without the lock
        if len(table.tail) >= _MAX_TAIL_NUMBERS:
            with self._lock:
                table.seal_tail()

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Append a batch as a copy. Sorting it is left to the next read of the ledger."""
        entry_ids, checked_locations = check_put(entries, locations)
        with self._lock:
            table = self._find_table(ledger) or self._make_table(ledger)
            table.seal_tail()  # earlier single puts come first: the first put of an entry wins
            if entry_ids.size:
                table.pending.append((entry_ids.copy(), checked_locations.copy()))

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return locations, 0 where absent; one binary search an entry."""
        return locations_of(as_entry_ids(entries), *self.items(ledger))

    def items(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> EntryLocations:
        """Return (entries, locations), views of the merged arrays."""
        first, last = check_bounds(first, last)
        with self._lock:
            table = self._find_table(ledger)
            if table is None:
                return _NO_ENTRIES, _NO_ENTRIES
            entry_ids, locations = table.merged()
        start = np.searchsorted(entry_ids, first)
        stop = np.searchsorted(entry_ids, last, "right")
        return entry_ids[start:stop], locations[start:stop]

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here. O(entries), as the result is not cached."""
        return Availability.from_entries(self.entries(ledger))

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers; the entries of short ones become sets
        together. `errors` stays empty: what is in memory is never damaged."""
        self._check_open()
        return self._list_chunks(self._ledgers_to_list(ledgers))

    def _list_chunks(self, ledger_ids: list[LedgerId]) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger's availability. The ledgers are taken in chunks, because turning many
        short lists of entries into sets at once is faster than one by one."""
        for start in range(0, len(ledger_ids), _LEDGERS_PER_CHUNK):
            chunk = ledger_ids[start : start + _LEDGERS_PER_CHUNK]
            lists = [self.entries(ledger_id) for ledger_id in chunk]
            # Short lists become sets together, each long one by itself. A long one has an empty
            # list in `short_lists`, so that numbers stay those of the chunk's ledgers.
            is_short = [entries.size <= _MAX_SHORT_ENTRIES for entries in lists]
            short_lists = [ids if short else _NO_ENTRIES for ids, short in zip(lists, is_short)]
            sets = sets_from_arrays(short_lists)
            for ledger_id, entries, short, short_set in zip(chunk, lists, is_short, sets):
                yield ledger_id, short_set if short else Availability.from_entries(entries)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of one scope, or of all with None, in unsigned order."""
        scope = check_scope(scope)
        with self._lock:
            self._check_open()
            if scope is None:
                return list(self._tables)
            return [ledger_id for ledger_id in self._tables if ledger_id.scope == scope]

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Inherited."""
        with self._lock:
            table = self._find_table(ledger)
            if table is None:
                raise NoSuchLedger(f"ledger {LedgerId.of(ledger)} is not in this memtable")
            return table.state

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Inherited."""
        check_state(state)
        with self._lock:
            (self._find_table(ledger) or self._make_table(ledger)).state = state

    def delete(self, ledger: LedgerLike) -> None:
        """Forget a ledger with all its entries."""
        with self._lock:
            self._check_open()
            ledger_id = LedgerId.of(ledger)
            if self._tables.pop(ledger_id, None) is not None:
                self._table_of.pop(ledger_id, None)
                if ledger_id.scope == 0:  # callers may also have passed its number
                    self._table_of.pop(ledger_id.ledger, None)

    def flush(self) -> None:
        """Nothing to do: a memtable is not durable."""

    def close(self) -> None:
        """Drop everything; a later call raises `IllegalOperation`. Idempotent."""
        with self._lock:
            self._closed = True
            self._tables.clear()
            self._table_of.clear()
