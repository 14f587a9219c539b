"""Rows: filling and reading a memtable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from sortedcontainers import SortedDict

from bkstore.ids import MAX_ENTRY_ID, Int64Array
from bkstore.index.memtable import MemtableIndex
from tools.bench.inputs.entry_ids import locations_of
from tools.bench.measure import Case, Context, Row, Side

LATE = 0.05
"""The share of entries that come late, as add requests overtake each other."""

_LATE_BY = 50
"""By up to how many rounds over the ledgers a late entry is late."""

Flat = SortedDict[tuple[int, int, int], int]
_Arrivals = tuple[Int64Array, Int64Array, Int64Array]


def arrivals(count: int, ledgers: int, seed: int) -> _Arrivals:
    """Return (ledger, entry, location) of adds: ledgers in turn, some entries late."""
    rng = np.random.default_rng(seed)
    at = np.arange(count, dtype=np.int64)
    late = (rng.random(count) < LATE) * rng.integers(1, _LATE_BY * ledgers, count)
    order = np.argsort(at + late, kind="stable")
    return (at % ledgers)[order], (at // ledgers)[order], locations_of(at)


def _flat_put(rows: list[tuple[int, int, int]]) -> Flat:
    table: Flat = SortedDict()
    for ledger, entry, location in rows:
        table.setdefault((0, ledger, entry), location)
    return table


def _flat_assign(rows: list[tuple[int, int, int]]) -> Flat:
    table: Flat = SortedDict()
    for ledger, entry, location in rows:
        table[0, ledger, entry] = location
    return table


def _listed(index: MemtableIndex, ledgers: int) -> list[Int64Array]:
    return [index.entries(ledger) for ledger in range(ledgers)]


def _put(rows: list[tuple[int, int, int]]) -> MemtableIndex:
    index = MemtableIndex()
    put = index.put
    for ledger, entry, location in rows:
        put(ledger, entry, location)
    return index


@contextmanager
def _adds(context: Context) -> Iterator[Iterable[Case]]:
    count = context.scaled(300_000)
    yield (case for ledgers in (100, 1, 10_000) for case in _add_cases(context, count, ledgers))


def _add_cases(context: Context, count: int, ledgers: int) -> Iterator[Case]:
    rows = list(zip(*(column.tolist() for column in arrivals(count, ledgers, context.seed))))
    name = f"put, {ledgers} ledger{'s' if ledgers > 1 else ''}"
    shape = f"{count} entries over {ledgers} ledgers in turn, {LATE:.0%} late"
    yield Case(
        name,
        count,
        shape,
        Side("MemtableIndex.put", lambda: _put(rows)),
        (
            Side("SortedDict.setdefault", lambda: _flat_put(rows)),
            Side("SortedDict[key] = value", lambda: _flat_assign(rows)),
        ),
        5 if ledgers == 100 else None,
    )
    yield Case(
        f"{name}, and read",
        count,
        shape,
        Side("put, entries()", lambda: _listed(_put(rows), ledgers)),
        (Side("SortedDict.setdefault, irange", lambda: _read_back(_flat_put(rows), ledgers)),),
    )


Batch = tuple[int, Int64Array, Int64Array]


def _batches(columns: _Arrivals, ledgers: int, per_batch: int) -> list[Batch]:
    """Return (ledger, entries, locations) batches, the ledgers in turn."""
    queues = []
    for ledger in range(ledgers):
        mine = columns[0] == ledger
        queues.append((ledger, columns[1][mine], columns[2][mine]))
    longest = max(entries.size for _, entries, _ in queues)
    return [
        (ledger, entries[at : at + per_batch], places[at : at + per_batch])
        for at in range(0, longest, per_batch)
        for ledger, entries, places in queues
        if at < entries.size
    ]


def _put_many(batches: list[Batch], ledgers: int) -> list[Int64Array]:
    index = MemtableIndex()
    for ledger, entries, places in batches:
        index.put_many(ledger, entries, places)
    return _listed(index, ledgers)


def _read_back(table: Flat, ledgers: int) -> list[list[int]]:
    return [
        [key[2] for key in table.irange((0, ledger, 0), (0, ledger, MAX_ENTRY_ID))]
        for ledger in range(ledgers)
    ]


def _flat_batches(batches: list[Batch], ledgers: int) -> list[list[int]]:
    table: Flat = SortedDict()
    for ledger, entries, places in batches:
        for entry, place in zip(entries.tolist(), places.tolist()):
            table.setdefault((0, ledger, entry), place)
    return _read_back(table, ledgers)


def _flat_updates(batches: list[Batch], ledgers: int) -> list[list[int]]:
    table: Flat = SortedDict()
    for ledger, entries, places in batches:
        table.update(
            ((0, ledger, entry), place) for entry, place in zip(entries.tolist(), places.tolist())
        )
    return _read_back(table, ledgers)


@contextmanager
def _bulk(context: Context) -> Iterator[list[Case]]:
    count, ledgers = context.scaled(300_000), 100
    columns = arrivals(count, ledgers, context.seed)
    yield [
        _bulk_case(_batches(columns, ledgers, per_batch), count, ledgers, per_batch)
        for per_batch in (1000, 100)
    ]


def _bulk_case(batches: list[Batch], count: int, ledgers: int, per_batch: int) -> Case:
    return Case(
        f"put_many, batches of {per_batch}",
        count,
        f"{count} entries over {ledgers} ledgers, batches of {per_batch}, {LATE:.0%} late",
        Side("put_many, entries()", lambda: _put_many(batches, ledgers)),
        (
            Side("SortedDict.setdefault, irange", lambda: _flat_batches(batches, ledgers)),
            Side("SortedDict.update, irange", lambda: _flat_updates(batches, ledgers)),
        ),
        40 if per_batch == 1000 else None,
    )


ROWS = (
    Row(
        "memtable-put",
        "memtable, one entry at a time",
        "All sides take the same rows, Python ints in order of arrival, into a new table. Ours: "
        "MemtableIndex.put. Baseline: one SortedDict with (scope, ledger, entry) keys, by "
        "setdefault (the memtable's rule: the first wins) and by assignment; the faster counts. "
        "'And read' lists the entries of every ledger once, which is when ours sorts.",
        _adds,
    ),
    Row(
        "memtable-put-many",
        "memtable, in batches, read back",
        "All sides take the same batches of (ledger, entries, locations), int64 arrays, into a "
        "new table and list the entries of every ledger once. Ours: put_many, then entries(), "
        "which merges and sorts. Baseline: one SortedDict with tuple keys, filled entry by entry "
        "or by update() a batch, then irange per ledger; the faster counts.",
        _bulk,
    ),
)
