"""Whose records are in a batch: ledgers, entry ids and LACs of all of them, by array operations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bkstore.arguments import instance
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.header import FLAGS_V2, V1_HEADER, V2_HEADER
from bkstore.formats.syntax.framing import words
from bkstore.ids import Int64Array, LedgerId, ledger_stretches

_check_batch = instance(RecordBatch)


class BatchIds(NamedTuple):
    """What the headers of the first records of a batch say, int64[n] each.

    Ids are in two's complement. n is less than the batch's length where a record is none: too
    short, or of version 2 with a first byte or scope that cannot be.
    """

    scopes: Int64Array
    ledgers: Int64Array
    entries: Int64Array
    lacs: Int64Array


def ids_of(batch: RecordBatch) -> BatchIds:
    """Return the ids of a batch's records, up to the first that is none. About 20 ns a record."""
    _check_batch("batch", batch)
    short = batch.sizes < V1_HEADER
    offsets = batch.offsets[: int(short.argmax()) if short.any() else len(batch)]
    data = np.frombuffer(batch.buffer, np.uint8)
    ledgers, entries, lacs = (words(data, offsets, at) for at in (0, 8, 16))
    scopes = np.zeros(offsets.size, np.int64)
    wide, count = np.flatnonzero(ledgers < 0), offsets.size  # of version 2: the top bit is set
    if wide.size:
        short = batch.sizes[wide] < V2_HEADER
        if short.any():
            count = int(wide[short.argmax()])
            wide = wide[wide < count]
        there = offsets[wide]
        for column, at in zip((scopes, ledgers, entries, lacs), (1, 9, 17, 25)):
            column[wide] = words(data, there, at)
        number = data[there] ^ FLAGS_V2
        odd = (number < 1) | (number > 4) | (scopes[wide] == 0)
        count = int(wide[odd.argmax()]) if odd.any() else count
    return BatchIds(scopes[:count], ledgers[:count], entries[:count], lacs[:count])


def order_by_ledger(scopes: Int64Array, ledgers: Int64Array) -> Int64Array:
    """Return row numbers by ledger, those of each in their order: int64[n]."""
    low = int(ledgers.min()) if ledgers.size else 0
    if (scopes != scopes[:1]).any():
        order = np.lexsort((ledgers, scopes))
    elif ledgers.size and int(ledgers.max()) - low < 1 << 16:  # 16 bits sort ten times as fast
        order = np.argsort((ledgers - low).astype(np.uint16), kind="stable")
    else:
        order = np.argsort(ledgers, kind="stable")
    return order.astype(np.int64, copy=False)


def rows_of_ledgers(scopes: Int64Array, ledgers: Int64Array) -> list[tuple[LedgerId, Int64Array]]:
    """Return (ledger, row numbers) of each ledger; rows in their order."""
    order = order_by_ledger(scopes, ledgers)
    stretches = ledger_stretches(scopes[order], ledgers[order])
    return [(name, order[start:stop]) for name, start, stop in stretches]


class BatchLedgers:
    """The ledgers of a batch's records, in the order in which they first appear.

    `names` are the ledgers; record i is of ``names[numbers[i]]``, or all are of the only one
    where `numbers` is None.

    >>> ledgers = BatchLedgers.of(np.array([0, 0, 0]), np.array([8, 7, 8]))
    >>> [name.ledger for name in ledgers.names], [rows.tolist() for rows in ledgers.rows(3)]
    ([8, 7], [[0, 2], [1]])
    """

    def __init__(self, names: list[LedgerId], numbers: Int64Array | None = None) -> None:
        self.names = names
        self.numbers = numbers

    @classmethod
    def of(cls, scopes: Int64Array, ledgers: Int64Array) -> BatchLedgers:
        """Return the ledgers of records by their ids, int64[n] in two's complement.

        A few ns a record where all are of one ledger, else a sort.
        """
        if not ledgers.size:
            return cls([])
        first = LedgerId.from_signed(int(scopes[0]), int(ledgers[0]))
        if (ledgers == ledgers[0]).all() and (scopes == scopes[0]).all():
            return cls([first])
        # Sorted by ledger, equal ones are one stretch: its number ranks the ledger.
        order = order_by_ledger(scopes, ledgers)
        begins = (np.diff(ledgers[order]) != 0) | (np.diff(scopes[order]) != 0)
        ranks = np.cumsum(np.concatenate(([0], begins)))
        firsts = order[np.concatenate(([True], begins))]  # a stable sort: the first of each
        # Ranks are in the order of ids; ledgers are numbered as they first appear.
        order_of_names, numbers = _by_first(firsts, ranks)
        named = firsts[order_of_names]
        unsorted = np.empty_like(numbers)
        unsorted[order] = numbers
        pairs = zip(scopes[named].tolist(), ledgers[named].tolist())
        return cls([LedgerId.from_signed(*pair) for pair in pairs], unsorted)

    def rows(self, count: int) -> list[Int64Array]:
        """Return for each ledger which of the batch's `count` records are its, in their order."""
        if self.numbers is None:
            return [np.arange(count)]
        order = np.argsort(self.numbers, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.numbers))[:-1])

    def first(self, number: int) -> int:
        """Return which record is the first of ledger `number`."""
        return 0 if self.numbers is None else int((self.numbers == number).argmax())

    def highest(self, values: Int64Array) -> list[tuple[LedgerId, int]]:
        """Return (ledger, the highest of the values of its records)."""
        if self.numbers is None:
            return [(self.names[0], int(values.max()))]
        found = np.full(len(self.names), np.iinfo(np.int64).min)
        np.maximum.at(found, self.numbers, values)
        return list(zip(self.names, found.tolist()))

    def between(self, start: int, stop: int) -> BatchLedgers:
        """Return the ledgers of the records start..stop (half open)."""
        if self.numbers is None or not len(self.names):
            return self
        numbers = self.numbers[start:stop]
        found, firsts, ranks = np.unique(numbers, return_index=True, return_inverse=True)
        order_of_names, numbers = _by_first(firsts, ranks)
        names = [self.names[number] for number in found[order_of_names].tolist()]
        return BatchLedgers(names, None if len(names) == 1 else numbers)

    def runs(self, count: int) -> list[tuple[LedgerId, int, int]]:
        """Return (ledger, start, stop) of the stretches of consecutive records of one ledger."""
        if self.numbers is None:
            return [(self.names[0], 0, count)] if count else []
        starts = [0, *(np.flatnonzero(np.diff(self.numbers)) + 1).tolist()]
        stops = [*starts[1:], count]
        owners = self.numbers[np.array(starts, np.int64)].tolist()
        return [(self.names[who], at, to) for who, at, to in zip(owners, starts, stops)]


def _by_first(firsts: Int64Array, ranks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the ranks in the order of where they first appear, and `ranks` numbered so."""
    order = np.argsort(firsts)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return order, place[ranks]
