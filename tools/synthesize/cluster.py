"""Ledgers, ensembles and faults of a synthetic cluster, drawn as arrays.

Ledgers are numbered in the order of their ids. A *stored range* is what a bookie stores of a
segment: a bookie, a ledger, a range of entries, and the slot in the ensemble whose share of the
range is stored. `lost` has the entries that are missing from stored ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from tools.synthesize.shape import MIN_SEGMENT_STRIPES, ClusterShape

_SOUND, BELOW_WRITE, BELOW_ACK, NO_REPLICA, HOMELESS, LEFTOVERS, UNCLOSED, ORPHAN = range(8)

SCOPE = LedgerId(2**63 + 5, 0).scope
"""The scope of scoped ledgers; above 2^63, like half of all scopes made from UUIDs."""

_ROWS_PER_DRAW = 1 << 22
_ORPHAN_STRIPES = 4
_LEFTOVER_STRIPES = 2
_MAX_LOST_STRIPES = 3


class StoredRanges(NamedTuple):
    """Int64 columns of equal length, sorted by bookie, ledger and first entry."""

    bookie: Int64Array
    ledger: Int64Array
    first: Int64Array
    last: Int64Array
    slot: Int64Array


class LostEntries(NamedTuple):
    """Lost entries: those of `bookie` and `ledger` from `entry` on, one per stripe."""

    bookie: Int64Array
    ledger: Int64Array
    entry: Int64Array
    stripes: Int64Array


def bookie_name(number: int) -> str:
    """Return a bookie's id.

    >>> bookie_name(7)
    'bookie-0007:3181'
    """
    return f"bookie-{number:04d}:3181"


@dataclass(frozen=True)
class _DrawnLedgers:
    """The kind, size and ensembles of each ledger; `change` is 0 without an ensemble change."""

    kind: Int64Array
    size: Int64Array
    change: Int64Array
    ensembles: Int64Array
    changed_slot: Int64Array
    new_bookie: Int64Array


class SyntheticCluster:
    """The arrays of a cluster, which depend on its shape alone. 200 bytes per ledger and slot."""

    def __init__(self, shape: ClusterShape) -> None:
        self.shape = shape
        rng = np.random.default_rng(shape.seed)
        self._drawn = _draw_ledgers(shape, rng)
        self.lost = _draw_losses(shape, self._drawn, rng)
        self.stored_ranges = _stored_ranges(shape, self._drawn)
        self.starts = np.searchsorted(self.stored_ranges.bookie, np.arange(shape.bookies + 1))
        """The rows of `stored_ranges` of bookie b are starts[b] to starts[b + 1]."""
        self.scoped = int(shape.scoped * self.kinds.size)

    @property
    def kinds(self) -> Int64Array:
        """The kind of each ledger: sound, or one of the faults."""
        return self._drawn.kind

    @property
    def sizes(self) -> Int64Array:
        """The number of entries of each ledger."""
        return self._drawn.size

    @property
    def segments(self) -> Int64Array:
        """The number of segments of each ledger."""
        return 1 + (self._drawn.change > 0)

    def ids(self) -> tuple[Int64Array, Int64Array]:
        """Return scope and number of each ledger as signed integers, in unsigned order."""
        total = self.kinds.size
        is_scoped = np.arange(total) >= total - self.scoped
        number = np.arange(total, dtype=np.uint64) * np.uint64(3) + np.uint64(1)
        number = np.where(is_scoped, number + np.uint64(2**63 - 3 * (total // 2)), number)
        scope = np.where(is_scoped, np.uint64(SCOPE), np.uint64(0))
        return scope.view(np.int64), number.view(np.int64)

    def ensembles_of(self, ledger: int) -> list[tuple[int, list[str]]]:
        """Return the (first entry, bookies) of each segment of a ledger."""
        drawn = self._drawn
        bookies = drawn.ensembles[ledger].tolist()
        segments = [(0, list(map(bookie_name, bookies)))]
        if drawn.change[ledger]:
            bookies[drawn.changed_slot[ledger]] = int(drawn.new_bookie[ledger])
            segments.append((int(drawn.change[ledger]), list(map(bookie_name, bookies))))
        return segments


def _draw_ledgers(shape: ClusterShape, rng: np.random.Generator) -> _DrawnLedgers:
    total = shape.ledgers + shape.orphans
    kind = _draw_kinds(shape, rng)
    size = _draw_sizes(shape, rng)
    size[kind == ORPHAN] = _ORPHAN_STRIPES * shape.ensemble_size
    min_segment = MIN_SEGMENT_STRIPES * shape.ensemble_size
    change = min_segment + (rng.random(total) * (size - 2 * min_segment + 1)).astype(np.int64)
    is_unchanged = (rng.random(total) >= shape.changed) & (kind != LEFTOVERS)
    change[is_unchanged | (kind == ORPHAN)] = 0
    ensembles = _ensembles(total, shape, rng)
    changed_slot = rng.integers(0, shape.ensemble_size, total)
    new_bookie = _spare(ensembles, shape, rng)
    return _DrawnLedgers(kind, size, change, ensembles, changed_slot, new_bookie)


def _draw_kinds(shape: ClusterShape, rng: np.random.Generator) -> Int64Array:
    counts = {
        BELOW_WRITE: shape.below_write,
        BELOW_ACK: shape.below_ack,
        NO_REPLICA: shape.no_replica,
        HOMELESS: shape.homeless,
        LEFTOVERS: shape.leftovers,
        UNCLOSED: shape.unclosed,
        ORPHAN: shape.orphans,
    }
    kinds = np.repeat(np.array([*counts, _SOUND]), [*counts.values(), shape.ledgers - shape.marked])
    return rng.permutation(kinds).astype(np.int64)


def _draw_sizes(shape: ClusterShape, rng: np.random.Generator) -> Int64Array:
    """Return log-normal ledger sizes that add up to the entries that the bookies store."""
    weight = rng.lognormal(0, 1, shape.ledgers + shape.orphans)
    total = shape.bookies * shape.entries // shape.write_quorum
    spare = total - shape.ledgers * shape.min_ledger_entries
    sizes: Int64Array = (shape.min_ledger_entries + weight / weight.sum() * spare).astype(np.int64)
    return sizes


def _ensembles(total: int, shape: ClusterShape, rng: np.random.Generator) -> Int64Array:
    parts, rows = [], max(_ROWS_PER_DRAW // shape.bookies, 1)
    for start in range(0, total, rows):
        # The bookies with the smallest random numbers of a row are an ensemble.
        dice = rng.random((min(rows, total - start), shape.bookies))
        chosen = np.argpartition(dice, shape.ensemble_size, axis=1)[:, : shape.ensemble_size]
        parts.append(rng.permuted(chosen, axis=1))
    return np.concatenate(parts).astype(np.int64)


def _spare(ensembles: Int64Array, shape: ClusterShape, rng: np.random.Generator) -> Int64Array:
    """Return a bookie for each ledger that is not in its ensemble."""
    spare = rng.integers(0, shape.bookies, len(ensembles))
    while (taken := (ensembles == spare[:, None]).any(axis=1)).any():
        spare[taken] = rng.integers(0, shape.bookies, int(taken.sum()))
    return spare


def _stored_ranges(shape: ClusterShape, drawn: _DrawnLedgers) -> StoredRanges:
    stored = np.flatnonzero(drawn.kind != HOMELESS)
    changed = stored[drawn.change[stored] > 0]
    leftovers = np.flatnonzero(drawn.kind == LEFTOVERS)
    ends = np.where(drawn.change > 0, drawn.change, drawn.size) - 1
    new_ensembles = drawn.ensembles[changed]
    new_ensembles[np.arange(changed.size), drawn.changed_slot[changed]] = drawn.new_bookie[changed]
    leftover_slots = drawn.changed_slot[leftovers]
    leftover_ends = drawn.change[leftovers] + _LEFTOVER_STRIPES * shape.ensemble_size - 1
    parts = [
        _ensemble_ranges(stored, np.zeros_like(stored), ends[stored], drawn.ensembles[stored]),
        _ensemble_ranges(changed, drawn.change[changed], drawn.size[changed] - 1, new_ensembles),
        StoredRanges(
            drawn.ensembles[leftovers, leftover_slots],
            leftovers,
            drawn.change[leftovers],
            leftover_ends,
            leftover_slots,
        ),
    ]
    joined = [np.concatenate(columns) for columns in zip(*parts)]
    order = np.lexsort((joined[2], joined[1], joined[0]))
    return StoredRanges(*(column[order] for column in joined))


def _ensemble_ranges(
    ledger: Int64Array, first: Int64Array, last: Int64Array, ensembles: Int64Array
) -> StoredRanges:
    size = ensembles.shape[1]
    ledgers, begin, end = (np.repeat(column, size) for column in (ledger, first, last))
    slots = np.tile(np.arange(size), ledger.size)
    return StoredRanges(ensembles.ravel(), ledgers, begin, end, slots)


def _draw_losses(
    shape: ClusterShape, drawn: _DrawnLedgers, rng: np.random.Generator
) -> LostEntries:
    """Draw the losses in first segments: some bookies lose the same entries of a ledger."""
    spare_replicas = shape.write_quorum - shape.ack_quorum
    losing_bookies = {BELOW_WRITE: 1, BELOW_ACK: spare_replicas + 1, NO_REPLICA: shape.write_quorum}
    rows: list[tuple[int, ...]] = []
    for kind, loser_count in losing_bookies.items():
        for ledger in np.flatnonzero(drawn.kind == kind).tolist():
            segment_end = int(drawn.change[ledger] or drawn.size[ledger])
            count = int(rng.integers(1, _MAX_LOST_STRIPES + 1))
            entry = int(rng.integers(0, segment_end - (count - 1) * shape.ensemble_size))
            losers = rng.permutation(shape.write_quorum)[:loser_count]
            slots = (entry + losers) % shape.ensemble_size
            rows += [(bookie, ledger, entry, count) for bookie in drawn.ensembles[ledger, slots]]
    table = np.array(rows, np.int64).reshape(-1, 4)
    return LostEntries(*table[np.lexsort((table[:, 1], table[:, 0]))].T)
