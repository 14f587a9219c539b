"""Ledgers, entry ids and LACs of all records of a batch, by array operations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bkstore.arguments import instance
from bkstore.formats.entry.batches.record_batch import RecordBatch
from bkstore.formats.entry.header import FLAGS_V2, V1_HEADER, V2_HEADER
from bkstore.formats.syntax.framing import read_int64s
from bkstore.ids import Int64Array, LedgerId, ledger_runs

_check_batch = instance(RecordBatch)


class BatchIds(NamedTuple):
    """The header fields of a batch's first n records, int64[n] each; ids in two's complement. They
    end before the first invalid record: too short, or with a wrong first byte or scope."""

    scopes: Int64Array
    ledgers: Int64Array
    entries: Int64Array
    lacs: Int64Array


def read_batch_ids(batch: RecordBatch) -> BatchIds:
    """Return the ids of the records before the first invalid one. About 20 ns a record."""
    _check_batch("batch", batch)
    # Read all records as version 1 (ledger, entry id and LAC at bytes 0, 8 and 16), which has no
    # scope, up to the first one that is too short.
    is_short = batch.sizes < V1_HEADER
    offsets = batch.offsets[: int(is_short.argmax()) if is_short.any() else len(batch)]
    data = batch.octets
    ledgers, entries, lacs = (read_int64s(data, offsets, position) for position in (0, 8, 16))
    scopes = np.zeros(offsets.size, np.int64)
    # Records of version 2, whose first bit is set, have flags and scope before the same fields.
    v2_rows, count = np.flatnonzero(ledgers < 0), offsets.size
    if v2_rows.size:
        is_short = batch.sizes[v2_rows] < V2_HEADER
        if is_short.any():
            count = int(v2_rows[is_short.argmax()])
            v2_rows = v2_rows[v2_rows < count]
        v2_offsets = offsets[v2_rows]
        for column, position in zip((scopes, ledgers, entries, lacs), (1, 9, 17, 25)):
            column[v2_rows] = read_int64s(data, v2_offsets, position)
        digest_numbers = data[v2_offsets] ^ FLAGS_V2  # the first byte: flags and a number, 1 to 4
        is_invalid = (digest_numbers < 1) | (digest_numbers > 4) | (scopes[v2_rows] == 0)
        count = int(v2_rows[is_invalid.argmax()]) if is_invalid.any() else count
    return BatchIds(scopes[:count], ledgers[:count], entries[:count], lacs[:count])


def order_by_ledger(scopes: Int64Array, ledgers: Int64Array) -> Int64Array:
    """Return row numbers sorted by ledger, int64[n]; a ledger's rows keep their order."""
    lowest = int(ledgers.min()) if ledgers.size else 0
    if (scopes != scopes[:1]).any():
        order = np.lexsort((ledgers, scopes))
    elif ledgers.size and int(ledgers.max()) - lowest < 1 << 16:
        # Numbers of 16 bits are sorted ten times as fast.
        order = np.argsort((ledgers - lowest).astype(np.uint16), kind="stable")
    else:
        order = np.argsort(ledgers, kind="stable")
    return order.astype(np.int64, copy=False)


def rows_of_ledgers(scopes: Int64Array, ledgers: Int64Array) -> list[tuple[LedgerId, Int64Array]]:
    """Return (ledger, row numbers) of each ledger; rows keep their order."""
    order = order_by_ledger(scopes, ledgers)
    runs = ledger_runs(scopes[order], ledgers[order])
    return [(ledger_id, order[start:stop]) for ledger_id, start, stop in runs]


class BatchLedgers:
    """The ledgers of a batch's records, `ledger_ids`, in the order in which they first appear.
    Record i is of ``ledger_ids[numbers[i]]``, or, if `numbers` is None, of the only ledger.

    >>> ledgers = BatchLedgers.of(np.array([0, 0, 0]), np.array([8, 7, 8]))
    >>> [ledger_id.ledger for ledger_id in ledgers.ledger_ids]
    [8, 7]
    >>> [rows.tolist() for rows in ledgers.rows_by_ledger(3)]
    [[0, 2], [1]]
    """

    def __init__(self, ledger_ids: list[LedgerId], numbers: Int64Array | None = None) -> None:
        self.ledger_ids = ledger_ids
        self.numbers = numbers

    @classmethod
    def of(cls, scopes: Int64Array, ledgers: Int64Array) -> BatchLedgers:
        """Return the ledgers of records, given their signed scopes and ids, int64[n]. O(n) if all
        are of one ledger, otherwise a sort."""
        if not ledgers.size:
            return cls([])
        first = LedgerId.from_signed(int(scopes[0]), int(ledgers[0]))
        if (ledgers == ledgers[0]).all() and (scopes == scopes[0]).all():
            return cls([first])
        # Sorted by ledger, the rows of a ledger are one run; the number of the run is its rank.
        order = order_by_ledger(scopes, ledgers)
        is_run_start = (np.diff(ledgers[order]) != 0) | (np.diff(scopes[order]) != 0)
        rank_of_sorted = np.cumsum(np.concatenate(([0], is_run_start)))
        # As the sort is stable, the first row of a run is also the first one in the batch.
        first_rows = order[np.concatenate(([True], is_run_start))]
        # Ranks are in the order of ids; renumber the ledgers in the order of appearance.
        ranks_by_appearance, numbers = _number_by_appearance(first_rows, rank_of_sorted)
        ledger_rows = first_rows[ranks_by_appearance]
        number_of_row = np.empty_like(numbers)
        number_of_row[order] = numbers
        signed_ids = zip(scopes[ledger_rows].tolist(), ledgers[ledger_rows].tolist())
        return cls([LedgerId.from_signed(*pair) for pair in signed_ids], number_of_row)

    def rows_by_ledger(self, count: int) -> list[Int64Array]:
        """Return the row numbers of each ledger, ascending, in a batch of `count` records."""
        if self.numbers is None:
            return [np.arange(count)]
        order = np.argsort(self.numbers, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.numbers))[:-1])

    def first_row(self, number: int) -> int:
        """Return the row number of the first record of ledger `number`."""
        return 0 if self.numbers is None else int((self.numbers == number).argmax())

    def highest_by_ledger(self, values: Int64Array) -> list[tuple[LedgerId, int]]:
        """Return (ledger, highest of its records' values) of each ledger."""
        if self.numbers is None:  # there is one ledger only
            return [(self.ledger_ids[0], int(values.max()))]
        maxima = np.full(len(self.ledger_ids), np.iinfo(np.int64).min)
        np.maximum.at(maxima, self.numbers, values)
        return list(zip(self.ledger_ids, maxima.tolist()))

    def between(self, start: int, stop: int) -> BatchLedgers:
        """Return the ledgers of the records start..stop (half open)."""
        if self.numbers is None or not len(self.ledger_ids):  # one ledger for all records, or none
            return self
        numbers = self.numbers[start:stop]
        # Renumber the ledgers that are left in the order in which they appear now.
        kept_numbers, first_rows, ranks = np.unique(numbers, return_index=True, return_inverse=True)
        ranks_by_appearance, numbers = _number_by_appearance(first_rows, ranks)
        kept_ledgers = [
            self.ledger_ids[number] for number in kept_numbers[ranks_by_appearance].tolist()
        ]
        return BatchLedgers(kept_ledgers, None if len(kept_ledgers) == 1 else numbers)

    def runs(self, count: int) -> list[tuple[LedgerId, int, int]]:
        """Return (ledger, start, stop) of each run of consecutive records of one ledger."""
        if self.numbers is None:  # there is one ledger only
            return [(self.ledger_ids[0], 0, count)] if count else []
        starts = [0, *(np.flatnonzero(np.diff(self.numbers)) + 1).tolist()]
        stops = [*starts[1:], count]
        numbers = self.numbers[np.array(starts, np.int64)].tolist()
        return [(self.ledger_ids[n], start, stop) for n, start, stop in zip(numbers, starts, stops)]


def _number_by_appearance(
    first_rows: Int64Array, ranks: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the ranks sorted by the row in which each appears first (``first_rows[rank]``), and
    `ranks` with each rank replaced by its position in that order."""
    ranks_by_appearance = np.argsort(first_rows)
    new_numbers = np.empty_like(ranks_by_appearance)
    new_numbers[ranks_by_appearance] = np.arange(ranks_by_appearance.size)
    return ranks_by_appearance, new_numbers[ranks]
