"""Rows: filling and reading a memtable."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from sortedcontainers import SortedDict

from bkstore.ids import MAX_ENTRY_ID, Int64Array
from bkstore.index.memtable import MemtableIndex
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, TimedSide
from tools.bench.inputs.entry_ids import locations_of

LATE_SHARE = 0.05
"""The share of entries that arrive late because other add requests overtake them."""

_MAX_ROUNDS_LATE = 50
"""The maximal number of rounds over the ledgers by which a late entry is late."""

FlatDict = SortedDict[tuple[int, int, int], int]
_Arrivals = tuple[Int64Array, Int64Array, Int64Array]


def make_arrivals(count: int, ledgers: int, seed: int) -> _Arrivals:
    """Return columns (ledger, entry, location) of adds to ledgers in turns, some entries late:
    locations ascend in the order of arrival."""
    rng = np.random.default_rng(seed)
    sequence = np.arange(count, dtype=np.int64)
    is_late = rng.random(count) < LATE_SHARE
    lateness = is_late * rng.integers(1, _MAX_ROUNDS_LATE * ledgers, count)  # in adds
    order = np.argsort(sequence + lateness, kind="stable")
    return (sequence % ledgers)[order], (sequence // ledgers)[order], locations_of(sequence)


def _put_into_dict(rows: list[tuple[int, int, int]]) -> FlatDict:
    table: FlatDict = SortedDict()
    for ledger, entry, location in rows:
        table.setdefault((0, ledger, entry), location)
    return table


def _assign_into_dict(rows: list[tuple[int, int, int]]) -> FlatDict:
    table: FlatDict = SortedDict()
    for ledger, entry, location in rows:
        table[0, ledger, entry] = location
    return table


def _list_entries(index: MemtableIndex, ledgers: int) -> list[Int64Array]:
    return [index.entries(ledger) for ledger in range(ledgers)]


def _put_into_memtable(rows: list[tuple[int, int, int]]) -> MemtableIndex:
    index = MemtableIndex()
    put = index.put
    for ledger, entry, location in rows:
        put(ledger, entry, location)
    return index


def _single_put_cases(context: Context) -> Cases:
    count = context.scaled(300_000)
    for ledgers in (100, 1, 10_000):
        yield from _cases_of_puts(context, count, ledgers)


def _cases_of_puts(context: Context, count: int, ledgers: int) -> Iterator[Case]:
    rows = list(zip(*(column.tolist() for column in make_arrivals(count, ledgers, context.seed))))
    name = f"put, {ledgers} ledger{'s' if ledgers > 1 else ''}"
    shape = f"{count} entries over {ledgers} ledgers in turn, {LATE_SHARE:.0%} late"
    ours = TimedSide("MemtableIndex.put", lambda: _put_into_memtable(rows))
    setdefault = TimedSide("SortedDict.setdefault", lambda: _put_into_dict(rows))
    assign = TimedSide("SortedDict[key] = value", lambda: _assign_into_dict(rows))
    limit = 5 if ledgers == 100 else None
    yield Case(name, count, shape, ours, (setdefault, assign), limit=limit)
    ours = TimedSide("put, entries()", lambda: _list_entries(_put_into_memtable(rows), ledgers))
    list_dict = lambda: _list_dict(_put_into_dict(rows), ledgers)  # noqa: E731
    irange = TimedSide("SortedDict.setdefault, irange", list_dict)
    yield Case(f"{name}, and read", count, shape, ours, (irange,))


Batch = tuple[int, Int64Array, Int64Array]


def _split_batches(columns: _Arrivals, ledgers: int, per_batch: int) -> list[Batch]:
    """Return batches of (ledger, entries, locations), with the ledgers in turns."""
    ledger_column, entries_column, locations_column = columns
    queues = []
    for ledger in range(ledgers):
        is_own = ledger_column == ledger
        queues.append((ledger, entries_column[is_own], locations_column[is_own]))
    max_entries = max(entries.size for _, entries, _ in queues)
    return [
        (ledger, entries[start : start + per_batch], locations[start : start + per_batch])
        for start in range(0, max_entries, per_batch)
        for ledger, entries, locations in queues
        if start < entries.size
    ]


def _put_batches_into_memtable(batches: list[Batch], ledgers: int) -> list[Int64Array]:
    index = MemtableIndex()
    for ledger, entries, locations in batches:
        index.put_many(ledger, entries, locations)
    return _list_entries(index, ledgers)


def _list_dict(table: FlatDict, ledgers: int) -> list[list[int]]:
    return [
        [key[2] for key in table.irange((0, ledger, 0), (0, ledger, MAX_ENTRY_ID))]
        for ledger in range(ledgers)
    ]


def _put_batches_into_dict(batches: list[Batch], ledgers: int) -> list[list[int]]:
    table: FlatDict = SortedDict()
    for ledger, entries, locations in batches:
        for entry_id, location in zip(entries.tolist(), locations.tolist()):
            table.setdefault((0, ledger, entry_id), location)
    return _list_dict(table, ledgers)


def _update_dict_by_batches(batches: list[Batch], ledgers: int) -> list[list[int]]:
    table: FlatDict = SortedDict()
    for ledger, entries, locations in batches:
        table.update(
            ((0, ledger, entry_id), location)
            for entry_id, location in zip(entries.tolist(), locations.tolist())
        )
    return _list_dict(table, ledgers)


def _batch_cases(context: Context) -> Cases:
    count, ledgers = context.scaled(300_000), 100
    columns = make_arrivals(count, ledgers, context.seed)
    for per_batch, limit in ((1000, 40), (100, None)):  # small batches have no limit
        batches = _split_batches(columns, ledgers, per_batch)
        name = f"batches of {per_batch}"
        shape = f"{count} entries over {ledgers} ledgers, {name}, {LATE_SHARE:.0%} late"
        ours, put, update = (
            TimedSide(title, partial(work, batches, ledgers))
            for title, work in (
                ("put_many, entries()", _put_batches_into_memtable),
                ("SortedDict.setdefault, irange", _put_batches_into_dict),
                ("SortedDict.update, irange", _update_dict_by_batches),
            )
        )
        yield Case(f"put_many, {name}", count, shape, ours, (put, update), limit=limit)


ROWS = (
    BenchmarkRow(
        "memtable-put",
        "memtable, one entry at a time",
        "All sides take the same rows, Python ints in order of arrival, into a new table. Ours: "
        "MemtableIndex.put. Baseline: one SortedDict with (scope, ledger, entry) keys, by "
        "setdefault (the memtable's rule: the first wins) and by assignment; the faster counts. "
        "'And read' lists the entries of every ledger once, which is when ours sorts.",
        _single_put_cases,
    ),
    BenchmarkRow(
        "memtable-put-many",
        "memtable, in batches, read back",
        "All sides take the same batches of (ledger, entries, locations), int64 arrays, into a "
        "new table and list the entries of every ledger once. Ours: put_many, then entries(), "
        "which merges and sorts. Baseline: one SortedDict with tuple keys, filled entry by entry "
        "or by update() a batch, then irange per ledger; the faster counts.",
        _batch_cases,
    ),
)
