"""Ledgers, ensembles and faults of a synthetic cluster, drawn as arrays.

A ledger is a number, in the order of ids. What bookies store are places: a bookie, a ledger, a
range of entries, and the place in an ensemble whose share of the range is stored. Where entries
of a place are lost, `lost` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from tools.synthesize.shape import LEAST_SEGMENTS, Shape

_SOUND, BELOW_WRITE, BELOW_ACK, NO_REPLICA, HOMELESS, LEFTOVERS, UNCLOSED, ORPHAN = range(8)

SCOPE = LedgerId(2**63 + 5, 0).scope
"""The other scope; above 2^63, as half of all scopes made from UUIDs are."""

_AT_ONCE = 1 << 22
_ORPHAN_STRIPES = 4
_LEFT_STRIPES = 2
_LOST_STRIPES = 3


class Places(NamedTuple):
    """Int64 columns of equal length, sorted by bookie, ledger and first entry."""

    bookie: Int64Array
    ledger: Int64Array
    first: Int64Array
    last: Int64Array
    place: Int64Array


class Lost(NamedTuple):
    """Entries from `entry` on, one a stripe, that `bookie` has lost of `ledger`."""

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
class _Drawn:
    """Ledgers: what became of them, entries, ensembles; `change` is 0 where there is none."""

    kind: Int64Array
    size: Int64Array
    change: Int64Array
    ensembles: Int64Array
    changed_place: Int64Array
    new_bookie: Int64Array


class Cluster:
    """A cluster of a shape: all of its arrays, which depend on the shape alone.

    Memory: some 200 bytes a ledger and ensemble place.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        chance = np.random.default_rng(shape.seed)
        self._drawn = _draw(shape, chance)
        self.lost = _losses(shape, self._drawn, chance)
        self.places = _places(shape, self._drawn)
        self.starts = np.searchsorted(self.places.bookie, np.arange(shape.bookies + 1))
        """The rows of `places` of bookie b are starts[b] to starts[b + 1]."""
        self.scoped = int(shape.scoped * self.kinds.size)

    @property
    def kinds(self) -> Int64Array:
        """What each ledger is: sound, or one of the faults."""
        return self._drawn.kind

    @property
    def sizes(self) -> Int64Array:
        """How many entries each ledger has."""
        return self._drawn.size

    @property
    def segments(self) -> Int64Array:
        """How many segments each ledger has."""
        return 1 + (self._drawn.change > 0)

    def ids(self) -> tuple[Int64Array, Int64Array]:
        """Return scope and number of each ledger, in two's complement; ascending, unsigned."""
        total = self.kinds.size
        far = np.arange(total) >= total - self.scoped
        number = np.arange(total, dtype=np.uint64) * np.uint64(3) + np.uint64(1)
        number = np.where(far, number + np.uint64(2**63 - 3 * (total // 2)), number)
        scope = np.where(far, np.uint64(SCOPE), np.uint64(0))
        return scope.view(np.int64), number.view(np.int64)

    def ensembles_of(self, ledger: int) -> list[tuple[int, list[str]]]:
        """Return the segments of a ledger: first entry, bookies."""
        drawn = self._drawn
        bookies = drawn.ensembles[ledger].tolist()
        found = [(0, list(map(bookie_name, bookies)))]
        if drawn.change[ledger]:
            bookies[drawn.changed_place[ledger]] = int(drawn.new_bookie[ledger])
            found.append((int(drawn.change[ledger]), list(map(bookie_name, bookies))))
        return found


# -- drawing


def _draw(shape: Shape, chance: np.random.Generator) -> _Drawn:
    total = shape.ledgers + shape.orphans
    kind = _kinds(shape, chance)
    size = _sizes(shape, chance)
    size[kind == ORPHAN] = _ORPHAN_STRIPES * shape.ensemble_size
    part = LEAST_SEGMENTS * shape.ensemble_size
    change = part + (chance.random(total) * (size - 2 * part + 1)).astype(np.int64)
    keeps = (chance.random(total) >= shape.changed) & (kind != LEFTOVERS)
    change[keeps | (kind == ORPHAN)] = 0
    ensembles = _ensembles(total, shape, chance)
    changed_place = chance.integers(0, shape.ensemble_size, total)
    return _Drawn(kind, size, change, ensembles, changed_place, _spare(ensembles, shape, chance))


def _kinds(shape: Shape, chance: np.random.Generator) -> Int64Array:
    """Return what each ledger is, in random order."""
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
    return chance.permutation(kinds).astype(np.int64)


def _sizes(shape: Shape, chance: np.random.Generator) -> Int64Array:
    """Return entries of each ledger: log-normal, together what the bookies are to store."""
    weight = chance.lognormal(0, 1, shape.ledgers + shape.orphans)
    spare = shape.bookies * shape.entries // shape.write_quorum - shape.ledgers * shape.least
    sizes: Int64Array = (shape.least + weight / weight.sum() * spare).astype(np.int64)
    return sizes


def _ensembles(total: int, shape: Shape, chance: np.random.Generator) -> Int64Array:
    """Return int64[total, E] of bookies, distinct in each row."""
    parts, rows = [], max(_AT_ONCE // shape.bookies, 1)
    for at in range(0, total, rows):
        dice = chance.random((min(rows, total - at), shape.bookies))
        chosen = np.argpartition(dice, shape.ensemble_size, axis=1)[:, : shape.ensemble_size]
        parts.append(chance.permuted(chosen, axis=1))
    return np.concatenate(parts).astype(np.int64)


def _spare(ensembles: Int64Array, shape: Shape, chance: np.random.Generator) -> Int64Array:
    """Return a bookie for each ledger that is not in its ensemble."""
    spare = chance.integers(0, shape.bookies, len(ensembles))
    while (taken := (ensembles == spare[:, None]).any(axis=1)).any():
        spare[taken] = chance.integers(0, shape.bookies, int(taken.sum()))
    return spare


# -- what is stored, and what is lost


def _places(shape: Shape, drawn: _Drawn) -> Places:
    """Return all places, those of homeless ledgers left out."""
    stored = np.flatnonzero(drawn.kind != HOMELESS)
    changed = stored[drawn.change[stored] > 0]
    left = np.flatnonzero(drawn.kind == LEFTOVERS)
    ends = np.where(drawn.change > 0, drawn.change, drawn.size) - 1
    after = drawn.ensembles[changed]
    after[np.arange(changed.size), drawn.changed_place[changed]] = drawn.new_bookie[changed]
    at = drawn.changed_place[left]
    left_ends = drawn.change[left] + _LEFT_STRIPES * shape.ensemble_size - 1
    parts = [
        _ranges(stored, np.zeros_like(stored), ends[stored], drawn.ensembles[stored]),
        _ranges(changed, drawn.change[changed], drawn.size[changed] - 1, after),
        Places(drawn.ensembles[left, at], left, drawn.change[left], left_ends, at),
    ]
    joined = [np.concatenate(columns) for columns in zip(*parts)]
    order = np.lexsort((joined[2], joined[1], joined[0]))
    return Places(*(column[order] for column in joined))


def _ranges(
    ledger: Int64Array, first: Int64Array, last: Int64Array, ensembles: Int64Array
) -> Places:
    """Return a row for each place of each ensemble."""
    size = ensembles.shape[1]
    whose, begin, end = (np.repeat(column, size) for column in (ledger, first, last))
    return Places(ensembles.ravel(), whose, begin, end, np.tile(np.arange(size), ledger.size))


def _losses(shape: Shape, drawn: _Drawn, chance: np.random.Generator) -> Lost:
    """Draw what is lost, always in the first segment: the same entries at some of their holders."""
    spared = shape.write_quorum - shape.ack_quorum
    holders = {BELOW_WRITE: 1, BELOW_ACK: spared + 1, NO_REPLICA: shape.write_quorum}
    rows: list[tuple[int, ...]] = []
    for kind, lose in holders.items():
        for ledger in np.flatnonzero(drawn.kind == kind).tolist():
            end = int(drawn.change[ledger] or drawn.size[ledger])
            count = int(chance.integers(1, _LOST_STRIPES + 1))
            entry = int(chance.integers(0, end - (count - 1) * shape.ensemble_size))
            which = (entry + chance.permutation(shape.write_quorum)[:lose]) % shape.ensemble_size
            rows += [(bookie, ledger, entry, count) for bookie in drawn.ensembles[ledger, which]]
    table = np.array(rows, np.int64).reshape(-1, 4)
    return Lost(*table[np.lexsort((table[:, 1], table[:, 0]))].T)
