"""The data of one bookie of a synthetic cluster: index rows, locations, entry logs. A bookie writes
in rounds, with a part of every ledger, as flushes of sorted storage do. Records have one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bkstore.formats.entrylog import HEADER_SIZE
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding, IndexBatch, LedgerState
from tools.synthesize.cluster import StoredRanges, SyntheticCluster

RECORD_BYTES = 256  # the bytes of a record in its log, including four for its size
ROUND_COUNT = 4
_LOG_BYTES = 1 << 30
_IDS_PER_BATCH = 1 << 20
_STATE = LedgerState(b"", fenced=False, limbo=False, explicit_lac=None)


class LogLedgers(NamedTuple):
    """Records of ledgers in entry logs: int64 columns of equal length, sorted by log and ledger."""

    log: Int64Array
    ledger: Int64Array
    record_counts: Int64Array


class BookieEntries:
    """The entries of one bookie, with the interface of an index that is dumped."""

    supports_limbo = False

    def __init__(self, cluster: SyntheticCluster, bookie: int, log_bytes: int = _LOG_BYTES) -> None:
        self._ensemble_size = cluster.shape.ensemble_size
        self._write_quorum = cluster.shape.write_quorum
        self._scopes, self._numbers = cluster.ids()  # by ledger, which is an index here
        rows = slice(*cluster.starts[bookie : bookie + 2])
        self._stored = StoredRanges(*(column[rows] for column in cluster.stored_ranges))
        # The (ledger, entry) pairs that are lost: one entry in each of some successive stripes.
        own_losses = np.stack(cluster.lost[1:])[:, cluster.lost.bookie == bookie].T
        self._lost = {
            (ledger, entry + stripe * self._ensemble_size)
            for ledger, entry, stripes in own_losses.tolist()
            for stripe in range(stripes)
        }
        self._records_per_log = (log_bytes - HEADER_SIZE) // RECORD_BYTES

    @property
    def index(self) -> BookieEntries:
        """The object itself, which also returns the ledger states."""
        return self

    def ledgers(self) -> list[LedgerId]:
        """Return the ids of the stored ledgers, in unsigned order."""
        return [
            LedgerId.from_signed(int(self._scopes[ledger]), int(self._numbers[ledger]))
            for ledger in self._ledgers
        ]

    def doubtful_ledgers(self) -> list[LedgerId]:
        """Return the ledgers of which damage may have hidden entries: none."""
        return []

    def listing_damage(self) -> list[Finding]:
        """Return the damage that may hide ledgers: none."""
        return []

    def hidden_ledgers(self, _: Iterable[LedgerId]) -> list[LedgerId]:
        """Return those of the ledgers that damage may hide: none."""
        return []

    def checked_state(self, ledger: LedgerId) -> tuple[LedgerState, list[Finding]]:
        """Return the state that all ledgers have."""
        return _STATE, []

    @cached_property
    def _ledgers(self) -> Int64Array:
        return np.unique(self._stored.ledger)

    @cached_property
    def _entry_counts(self) -> Int64Array:
        """The number of stored entries of each ledger in `_ledgers`."""
        _, _, first, last, slot = self._stored
        rows = self._count_stored_below(last + 1, slot) - self._count_stored_below(first, slot)
        counts = np.zeros(self._ledgers.size, np.int64)
        np.add.at(counts, np.searchsorted(self._ledgers, self._stored.ledger), rows)
        for ledger, _ in self._lost:
            counts[np.searchsorted(self._ledgers, ledger)] -= 1
        return counts

    def _count_stored_below(self, entries: Int64Array, slot: Int64Array) -> Int64Array:
        """Return how many of the entries below `entries` belong to `slot` of an ensemble."""
        # W of each E entries do. For the rest, count the entries below each remainder by slot.
        size = self._ensemble_size
        is_stored = (np.arange(size)[:, None] - np.arange(size)) % size < self._write_quorum
        no_entries = np.zeros((size, 1), np.int64)
        counts = np.cumsum(is_stored, axis=1, dtype=np.int64)
        stored_below = np.concatenate((no_entries, counts), axis=1)
        return entries // size * self._write_quorum + stored_below[slot, entries % size]

    @property
    def total(self) -> int:
        """The number of entries."""
        return int(self._entry_counts.sum())

    @cached_property
    def _round_bounds(self) -> Int64Array:
        """int64[ROUND_COUNT + 1, ledgers]: the rank in its ledger at which each round begins."""
        rounds = np.arange(ROUND_COUNT + 1)[:, None]
        return (rounds * self._entry_counts + ROUND_COUNT - 1) // ROUND_COUNT

    @cached_property
    def _records_before_run(self) -> Int64Array:
        """int64[ROUND_COUNT, ledgers]: the bookie's records before those of a round and ledger."""
        sizes = np.diff(self._round_bounds, axis=0).ravel()
        return (np.cumsum(sizes) - sizes).reshape(ROUND_COUNT, -1)

    def _locations(self, ledger_index: Int64Array, rank: Int64Array) -> Int64Array:
        """Return the locations of the records number `rank` of ledgers (indexes in `_ledgers`)."""
        # A run is what one round writes of one ledger; runs follow each other in the logs.
        round_number = rank * ROUND_COUNT // np.maximum(self._entry_counts[ledger_index], 1)
        run = round_number, ledger_index
        record_number = self._records_before_run[run] + rank - self._round_bounds[run]
        log, number_in_log = np.divmod(record_number, self._records_per_log)
        return make_locations(log, HEADER_SIZE + number_in_log * RECORD_BYTES + SIZE_FIELD_BYTES)

    def logs(self) -> LogLedgers:
        """Return the number of records of each ledger in each entry log."""
        # A run is what one round writes of one ledger; logs cut runs wherever they are full.
        run_starts = self._records_before_run.ravel()
        log_starts = np.arange(0, self.total, self._records_per_log)
        bounds = np.unique(np.concatenate((run_starts, log_starts, [self.total])))
        # Between two bounds are records of one ledger in one log. Add these up by log and ledger.
        run_numbers = np.searchsorted(run_starts, bounds[:-1], side="right") - 1
        ledger_count = self._ledgers.size
        log_numbers = bounds[:-1] // self._records_per_log
        piece_keys = log_numbers * ledger_count + run_numbers % ledger_count
        keys, key_indexes = np.unique(piece_keys, return_inverse=True)
        record_counts = np.bincount(key_indexes, np.diff(bounds), keys.size).astype(np.int64)
        return LogLedgers(keys // ledger_count, self._ledgers[keys % ledger_count], record_counts)

    def signed_ids(self, ledgers: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the scopes and numbers of ledgers, as signed integers."""
        return self._scopes[ledgers], self._numbers[ledgers]

    def rows(self, findings: list[Finding], batch: int = _IDS_PER_BATCH) -> Iterator[IndexBatch]:
        """Yield the index rows in order, generated from `batch` entry ids at a time."""
        first_rows = np.cumsum(self._entry_counts) - self._entry_counts  # of each ledger
        rows_done = 0
        for ranges in self._split_ranges(batch):
            ledger, entry = self._stored_entries(ranges)
            ledger_index = np.searchsorted(self._ledgers, ledger)
            # The rank of an entry is its number among the stored entries of its ledger.
            rank = rows_done + np.arange(entry.size) - first_rows[ledger_index]
            rows_done += entry.size
            dir_index = np.broadcast_to(np.int64(0), entry.shape)
            scope, number = self.signed_ids(ledger)
            yield IndexBatch(dir_index, scope, number, entry, self._locations(ledger_index, rank))

    def _split_ranges(self, batch: int) -> Iterator[StoredRanges]:
        """Yield the stored ranges in groups of at most `batch` entry ids; long ones are split."""
        pending: list[tuple[int, ...]] = []
        room = batch
        for bookie, ledger, first, last, slot in zip(*(column.tolist() for column in self._stored)):
            while first <= last:
                part_last = min(last, first + room - 1)
                pending.append((bookie, ledger, first, part_last, slot))
                room -= part_last - first + 1
                first = part_last + 1
                if not room:
                    yield StoredRanges(*np.array(pending, np.int64).T)
                    pending, room = [], batch
        if pending:
            yield StoredRanges(*np.array(pending, np.int64).T)

    def _stored_entries(self, ranges: StoredRanges) -> tuple[Int64Array, Int64Array]:
        """Return the columns (ledger, entry) of the entries that are stored of some ranges."""
        # List all entry ids of the ranges, range by range; then keep those of the slot's stripe.
        spans = ranges.last - ranges.first + 1
        ends = np.cumsum(spans)
        entry = np.arange(ends[-1]) + np.repeat(ranges.first - (ends - spans), spans)
        slot, ledger = np.repeat(ranges.slot, spans), np.repeat(ranges.ledger, spans)
        is_stored = (slot - entry) % self._ensemble_size < self._write_quorum
        for lost_ledger, lost_entry in self._lost:
            is_stored &= (ledger != lost_ledger) | (entry != lost_entry)
        return ledger[is_stored], entry[is_stored]
