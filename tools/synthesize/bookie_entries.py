"""What one bookie of a synthetic cluster stores: its rows, where they lie, its entry logs.

A bookie writes in rounds: in each, a part of every ledger, ledger by ledger, as sorted storage
does when it flushes. All records have one size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding, IndexBatch, LedgerState
from tools.synthesize.cluster import Cluster, Places

RECORD = 256
"""Bytes of a record in its log, with the four of its size."""

ROUNDS = 4
_LOG_BYTES = 1 << 30
_LOG_HEADER = 1024
_AT_ONCE = 1 << 20
_STATE = LedgerState(b"", fenced=False, limbo=False, explicit_lac=None)


class LogLedgers(NamedTuple):
    """Records of ledgers in entry logs: int64 columns of equal length, sorted by log and ledger."""

    log: Int64Array
    ledger: Int64Array
    records: Int64Array


class BookieEntries:
    """The entries of one bookie, in the form of an index that is being dumped."""

    supports_limbo = False

    def __init__(self, cluster: Cluster, bookie: int, log_bytes: int = _LOG_BYTES) -> None:
        self._size = cluster.shape.ensemble_size
        self._quorum = cluster.shape.write_quorum
        self._scopes, self._numbers = cluster.ids()
        rows = slice(*cluster.starts[bookie : bookie + 2])
        self._places = Places(*(column[rows] for column in cluster.places))
        lost = cluster.lost.bookie == bookie
        self._lost = {
            (int(ledger), int(entry) + n * self._size)
            for ledger, entry, count in zip(
                cluster.lost.ledger[lost], cluster.lost.entry[lost], cluster.lost.stripes[lost]
            )
            for n in range(int(count))
        }
        self.per_log = (log_bytes - _LOG_HEADER) // RECORD

    @property
    def index(self) -> BookieEntries:
        """Itself: what is asked for states."""
        return self

    def ledgers(self) -> list[LedgerId]:
        """Return the ledgers it has, in unsigned order."""
        return [
            LedgerId.from_signed(int(self._scopes[each]), int(self._numbers[each]))
            for each in self._ledgers
        ]

    def checked_state(self, ledger: LedgerId) -> tuple[LedgerState, list[Finding]]:
        """Return the state that all ledgers have."""
        return _STATE, []

    # -- how many

    @cached_property
    def _ledgers(self) -> Int64Array:
        return np.unique(self._places.ledger)

    @cached_property
    def _counts(self) -> Int64Array:
        """Return how many entries it has of each of its ledgers."""
        _, _, first, last, place = self._places
        rows = self._below(last + 1, place) - self._below(first, place)
        counts = np.zeros(self._ledgers.size, np.int64)
        np.add.at(counts, np.searchsorted(self._ledgers, self._places.ledger), rows)
        for ledger, _ in self._lost:
            counts[np.searchsorted(self._ledgers, ledger)] -= 1
        return counts

    def _below(self, entries: Int64Array, place: Int64Array) -> Int64Array:
        """Return how many of the entries below `entries` belong to `place` of an ensemble."""
        size = self._size
        rest = np.arange(size)
        held = (np.arange(size)[:, None] - rest) % size < self._quorum
        sums: Int64Array = np.concatenate(
            (np.zeros((size, 1), np.int64), np.cumsum(held, axis=1)), axis=1
        )
        below: Int64Array = entries // size * self._quorum
        below += sums[place, entries % size]
        return below

    @property
    def total(self) -> int:
        """How many entries it has."""
        return int(self._counts.sum())

    # -- where they lie

    @cached_property
    def _bounds(self) -> Int64Array:
        """Return int64[ROUNDS + 1, ledgers]: the rank at which each round begins."""
        rounds = np.arange(ROUNDS + 1)[:, None]
        return (rounds * self._counts + ROUNDS - 1) // ROUNDS

    @cached_property
    def _bases(self) -> Int64Array:
        """Return int64[ROUNDS, ledgers]: records of the bookie before each stretch."""
        sizes = np.diff(self._bounds, axis=0).ravel()
        return (np.cumsum(sizes) - sizes).reshape(ROUNDS, -1)

    def _locations(self, ledger: Int64Array, rank: Int64Array) -> Int64Array:
        turn = rank * ROUNDS // np.maximum(self._counts[ledger], 1)
        record = self._bases[turn, ledger] + rank - self._bounds[turn, ledger]
        log, slot = np.divmod(record, self.per_log)
        return make_locations(log, _LOG_HEADER + slot * RECORD + 4)

    def logs(self) -> LogLedgers:
        """Return which ledgers its entry logs have."""
        starts = self._bases.ravel()
        cuts = np.arange(0, self.total, self.per_log)
        points = np.unique(np.concatenate((starts, cuts, [self.total])))
        records = np.diff(points)
        stretch = np.searchsorted(starts, points[:-1], side="right") - 1
        count = self._ledgers.size
        key = points[:-1] // self.per_log * count + stretch % count
        keys, at = np.unique(key, return_inverse=True)
        sums = np.bincount(at, records, keys.size).astype(np.int64)
        return LogLedgers(keys // count, self._ledgers[keys % count], sums)

    def ids_of(self, ledgers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return scope and number of ledgers, in two's complement."""
        return self._scopes[ledgers], self._numbers[ledgers]

    # -- the rows

    def rows(self, findings: list[Finding], batch: int = _AT_ONCE) -> Iterator[IndexBatch]:
        """Yield its index rows in order, from some `batch` entry ids at a time."""
        begins = np.cumsum(self._counts) - self._counts
        done = 0
        for part in self._parts(batch):
            ledger, entry = self._entries(part)
            at = np.searchsorted(self._ledgers, ledger)
            rank = done + np.arange(entry.size) - begins[at]
            done += entry.size
            where = np.broadcast_to(np.int64(0), entry.shape)
            scope, number = self.ids_of(ledger)
            yield IndexBatch(where, scope, number, entry, self._locations(at, rank))

    def _parts(self, batch: int) -> Iterator[Places]:
        """Yield the places in stretches of at most `batch` entry ids; a long one is cut."""
        waiting: list[tuple[int, ...]] = []
        room = batch
        for bookie, ledger, first, last, place in zip(*(c.tolist() for c in self._places)):
            while first <= last:
                end = min(last, first + room - 1)
                waiting.append((bookie, ledger, first, end, place))
                room -= end - first + 1
                first = end + 1
                if not room:
                    yield Places(*np.array(waiting, np.int64).T)
                    waiting, room = [], batch
        if waiting:
            yield Places(*np.array(waiting, np.int64).T)

    def _entries(self, part: Places) -> tuple[Int64Array, Int64Array]:
        """Return (ledger, entry) of all that is stored of some places."""
        spans = part.last - part.first + 1
        ends = np.cumsum(spans)
        entry = np.arange(ends[-1]) + np.repeat(part.first - ends + spans, spans)
        place, ledger = np.repeat(part.place, spans), np.repeat(part.ledger, spans)
        held = (place - entry) % self._size < self._quorum
        for lost_ledger, lost_entry in self._lost:
            held &= (ledger != lost_ledger) | (entry != lost_entry)
        return ledger[held], entry[held]
