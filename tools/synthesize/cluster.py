"""Ledgers, ensembles and faults of a synthetic cluster, drawn as arrays. Ledgers are numbered in
the order of their ids. A *stored range* is what a bookie stores of a segment: a bookie, a ledger, a
range of entries, and the slot in the ensemble whose share of the range is stored. `lost` has the
entries that are missing from stored ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from tools.synthesize.shape import MIN_SEGMENT_STRIPES, ClusterShape

_Rng = np.random.Generator

_SOUND, BELOW_WRITE, BELOW_ACK, NO_REPLICA, HOMELESS, LEFTOVERS, UNCLOSED, ORPHAN = range(8)

SCOPE = LedgerId(2**63 + 5, 0).scope
"""The scope of scoped ledgers; above 2^63, like half of all scopes made from UUIDs."""

_NUMBERS_PER_DRAW = 1 << 22
_ORPHAN_STRIPES = 4
LEFTOVER_STRIPES = 2
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
    """The kind, size and first ensemble of each ledger. From entry `change_entry` on (0: never),
    `new_bookie` is in the place of the one in `changed_slot`."""

    kind: Int64Array
    size: Int64Array
    change_entry: Int64Array
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
        self.scoped_count = int(shape.scoped * self.kinds.size)

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
        return 1 + (self._drawn.change_entry > 0)

    def ids(self) -> tuple[Int64Array, Int64Array]:
        """Return scope and number of each ledger as signed integers, in unsigned order."""
        total = self.kinds.size
        is_scoped = np.arange(total) >= total - self.scoped_count  # the last ones
        # Numbers are three apart; those of scoped ledgers lie around 2^63, where the sign changes.
        number = np.arange(total, dtype=np.uint64) * np.uint64(3) + np.uint64(1)
        number = np.where(is_scoped, number + np.uint64(2**63 - 3 * (total // 2)), number)
        scope = np.where(is_scoped, np.uint64(SCOPE), np.uint64(0))
        return scope.view(np.int64), number.view(np.int64)

    def ensembles_of(self, ledger: int) -> list[tuple[int, list[str]]]:
        """Return the (first entry, bookies) of each segment of a ledger."""
        drawn = self._drawn
        bookies = drawn.ensembles[ledger].tolist()
        segments = [(0, list(map(bookie_name, bookies)))]
        if drawn.change_entry[ledger]:
            bookies[drawn.changed_slot[ledger]] = int(drawn.new_bookie[ledger])
            segments.append((int(drawn.change_entry[ledger]), list(map(bookie_name, bookies))))
        return segments


def _draw_ledgers(shape: ClusterShape, rng: _Rng) -> _DrawnLedgers:
    total = shape.ledgers + shape.orphans
    kind = _draw_kinds(shape, rng)
    size = _draw_sizes(shape, rng)
    size[kind == ORPHAN] = _ORPHAN_STRIPES * shape.ensemble_size
    # Draw a place for an ensemble change in each ledger, then drop most of them. Leftovers need
    # one; orphans have no metadata in which it could be.
    min_segment = MIN_SEGMENT_STRIPES * shape.ensemble_size
    change_entry = min_segment + (rng.random(total) * (size - 2 * min_segment + 1)).astype(np.int64)
    is_unchanged = (rng.random(total) >= shape.changed) & (kind != LEFTOVERS)
    change_entry[is_unchanged | (kind == ORPHAN)] = 0
    ensembles = _draw_ensembles(total, shape, rng)
    changed_slot = rng.integers(0, shape.ensemble_size, total)
    new_bookie = _draw_new_bookies(ensembles, shape, rng)
    return _DrawnLedgers(kind, size, change_entry, ensembles, changed_slot, new_bookie)


def _draw_kinds(shape: ClusterShape, rng: _Rng) -> Int64Array:
    """Return the kind of each ledger: as many of each fault as asked for, in random order."""
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


def _draw_sizes(shape: ClusterShape, rng: _Rng) -> Int64Array:
    """Return log-normal ledger sizes that add up to the entries that the bookies store."""
    weight = rng.lognormal(0, 1, shape.ledgers + shape.orphans)
    total = shape.bookies * shape.entries // shape.write_quorum
    # Each ledger has the minimal size, and a random part of the entries beyond that.
    remaining = total - shape.ledgers * shape.min_ledger_entries
    shares = weight / weight.sum()
    sizes: Int64Array = (shape.min_ledger_entries + shares * remaining).astype(np.int64)
    return sizes


def _draw_ensembles(total: int, shape: ClusterShape, rng: _Rng) -> Int64Array:
    """Return int64[total, E]: distinct random bookies, drawn for some ledgers at a time."""
    parts, ledgers_per_draw = [], max(_NUMBERS_PER_DRAW // shape.bookies, 1)
    for start in range(0, total, ledgers_per_draw):
        # The bookies with the smallest random numbers of a row are an ensemble.
        numbers = rng.random((min(ledgers_per_draw, total - start), shape.bookies))
        chosen = np.argpartition(numbers, shape.ensemble_size, axis=1)[:, : shape.ensemble_size]
        parts.append(rng.permuted(chosen, axis=1))
    return np.concatenate(parts).astype(np.int64)


def _draw_new_bookies(ensembles: Int64Array, shape: ClusterShape, rng: _Rng) -> Int64Array:
    """Return a bookie for each ledger that is not in its ensemble."""
    drawn = rng.integers(0, shape.bookies, len(ensembles))
    while (is_in_ensemble := (ensembles == drawn[:, None]).any(axis=1)).any():
        drawn[is_in_ensemble] = rng.integers(0, shape.bookies, int(is_in_ensemble.sum()))
    return drawn


def _stored_ranges(shape: ClusterShape, drawn: _DrawnLedgers) -> StoredRanges:
    """Return what is stored: of all ledgers but those of which nothing is, the first segment, the
    second one if there is a change, and leftovers of the second one at the replaced bookie."""
    stored = np.flatnonzero(drawn.kind != HOMELESS)
    changed = stored[drawn.change_entry[stored] > 0]
    leftovers = np.flatnonzero(drawn.kind == LEFTOVERS)
    first_ends = np.where(drawn.change_entry > 0, drawn.change_entry, drawn.size)[stored]
    begins = drawn.change_entry[changed]
    new_ensembles = drawn.ensembles[changed]
    new_ensembles[np.arange(changed.size), drawn.changed_slot[changed]] = drawn.new_bookie[changed]
    replaced_slots = drawn.changed_slot[leftovers]
    replaced_bookies = drawn.ensembles[leftovers, replaced_slots]
    leftover_begins = drawn.change_entry[leftovers]
    leftover_lasts = leftover_begins + LEFTOVER_STRIPES * shape.ensemble_size - 1
    parts = [
        _ensemble_ranges(stored, np.zeros_like(stored), first_ends - 1, drawn.ensembles[stored]),
        _ensemble_ranges(changed, begins, drawn.size[changed] - 1, new_ensembles),
        StoredRanges(replaced_bookies, leftovers, leftover_begins, leftover_lasts, replaced_slots),
    ]
    ranges = StoredRanges(*(np.concatenate(columns) for columns in zip(*parts)))
    order = np.lexsort((ranges.first, ranges.ledger, ranges.bookie))
    return StoredRanges(*(column[order] for column in ranges))


def _ensemble_ranges(
    ledger: Int64Array, first: Int64Array, last: Int64Array, ensembles: Int64Array
) -> StoredRanges:
    """Return a range for each slot of each ledger's ensemble (a row of `ensembles`)."""
    size = ensembles.shape[1]
    ledgers, begins, lasts = (np.repeat(column, size) for column in (ledger, first, last))
    slots = np.tile(np.arange(size), ledger.size)
    return StoredRanges(ensembles.ravel(), ledgers, begins, lasts, slots)


def _draw_losses(shape: ClusterShape, drawn: _DrawnLedgers, rng: _Rng) -> LostEntries:
    """Draw the losses in first segments: some bookies lose the same entries of a ledger, one in
    each of some successive stripes."""
    spare_replicas = shape.write_quorum - shape.ack_quorum
    loser_counts = {BELOW_WRITE: 1, BELOW_ACK: spare_replicas + 1, NO_REPLICA: shape.write_quorum}
    rows: list[tuple[int, ...]] = []
    for kind, loser_count in loser_counts.items():
        for ledger in np.flatnonzero(drawn.kind == kind).tolist():
            segment_end = int(drawn.change_entry[ledger] or drawn.size[ledger])
            stripes = int(rng.integers(1, _MAX_LOST_STRIPES + 1))
            entry = int(rng.integers(0, segment_end - (stripes - 1) * shape.ensemble_size))
            # The entry's write set is its slot and the next ones; some of these lose it.
            positions = rng.permutation(shape.write_quorum)[:loser_count]
            slots = (entry + positions) % shape.ensemble_size
            rows += [(bookie, ledger, entry, stripes) for bookie in drawn.ensembles[ledger, slots]]
    table = np.array(rows, np.int64).reshape(-1, 4)
    return LostEntries(*table[np.lexsort((table[:, 1], table[:, 0]))].T)
