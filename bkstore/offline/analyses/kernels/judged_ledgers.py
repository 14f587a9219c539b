"""What comes of ledgers whose metadata are held against groups: due, missing, surplus.

The rules are the auditor's (`bkstore.cluster.audit`), and so is the set algebra. Every ledger of
every bookie is laid on one axis, so that array work is done once for all of a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import fold
from bkstore.availability.sequence_groups import Groups
from bkstore.durability import (
    Due,
    Held,
    MissingReplicas,
    Shortage,
    due_places,
    missing_groups,
)
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.ledger_said import LedgerSaid
from bkstore.offline.analyses.kernels.ledgers_side_by_side import Owned, combined, count, fold_many
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.schedule import expected_many


@dataclass(slots=True)
class Subject:
    """A ledger: what is said of it, and what comes of that."""

    ledger: LedgerId
    said: LedgerSaid
    due: int = 0
    missing: int = 0
    held: bool = False
    worst: Shortage | None = None
    unread: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    lacks: list[MissingReplicas] = field(default_factory=list)
    surplus: list[tuple[str, Availability]] = field(default_factory=list)


class _DueRow(NamedTuple):
    """A place in a segment that entries go to, with the columns of `Due` in front."""

    ledger: int
    first: int
    last: int
    place: int
    size: int
    quorum: int
    ensemble: list[str]


class _Rows(NamedTuple):
    """What is due and what is held of each `pair`, a ledger of a bookie, by the pair's number."""

    bookies: list[str]
    bookie: Int64Array
    ledger: Int64Array
    places: list[_DueRow]
    due: Due
    held: Owned


def judge_ledgers(
    subjects: Mapping[int, Subject],
    held: Mapping[str, Owned],
    bookies: frozenset[str],
    *,
    worst: bool = True,
) -> None:
    """Note in the subjects what bookies lack of them and have beyond, and if asked the `worst`.

    `subjects` are by number, as owners of each bookie's canonical groups are; groups of other
    numbers are passed over. `bookies` are those that were read.
    """
    rows = _paired(subjects, held, _due_rows(subjects, bookies))
    for number in np.unique(rows.ledger[rows.held.owner[run_starts(rows.held.owner)]]).tolist():
        subjects[number].held = True
    extra = count(rows.held, rows.ledger.size)
    dues = _due_counts(rows.due)
    np.subtract.at(extra, rows.due.ledger, dues)
    for place, entries in zip(rows.places, dues.tolist()):
        subjects[place.ledger].due += entries
    whose, lacks = _note_lacks(subjects, rows, extra)
    if worst and lacks.owner.size:
        for number, found in shortages(whose, rows.due.bookie_index, lacks).items():
            subjects[number].worst = found
    for pair in np.flatnonzero(extra > 0).tolist():
        subject = subjects[int(rows.ledger[pair])]
        bookie = rows.bookies[int(rows.bookie[pair])]
        if subject.said.skip is None and bookie not in subject.unread:
            subject.surplus.append((bookie, _beyond(rows, pair)))


def _due_rows(subjects: Mapping[int, Subject], bookies: frozenset[str]) -> dict[str, list[_DueRow]]:
    """Return what is due at each bookie; note which bookies cannot be judged."""
    found: dict[str, list[_DueRow]] = defaultdict(list)
    for number, subject in subjects.items():
        said = subject.said
        if said.skip is not None:
            continue
        size, quorum = said.ensemble_size, said.write_quorum
        for segment in said.ranges():
            for bookie, first, last, at in due_places([segment], size, quorum):
                if bookie not in bookies:
                    subject.absent.add(bookie)
                elif bookie not in subject.unread:
                    row = _DueRow(number, first, last, at, size, quorum, segment[2])
                    found[bookie].append(row)
    return found


def _paired(
    subjects: Mapping[int, Subject],
    held: Mapping[str, Owned],
    due: Mapping[str, list[_DueRow]],
) -> _Rows:
    """Number every (bookie, ledger) of which something is due or held, in that order."""
    names = sorted({*due, *held})
    known = np.fromiter(subjects, np.int64, len(subjects))
    total = int(known.max(initial=-1)) + 1
    here, there, places = [], [], []
    groups = []
    for rank, bookie in enumerate(names):
        rows = held.get(bookie, Owned.none())
        rows = rows.take(np.isin(rows.owner, known))
        here.append(rows.owner + rank * total)
        groups.append(rows.groups)
        mine = due.get(bookie, [])
        places += mine
        there.append(np.fromiter((row.ledger for row in mine), np.int64, len(mine)) + rank * total)
    # Asked for places too, numpy sorts with the sort that knows runs, which these are.
    pairs, _, number = np.unique(
        np.concatenate([*here, *there, known[:0]]), return_index=True, return_inverse=True
    )
    split = sum(part.size for part in here)
    table = np.array([row[:6] for row in places], np.int64).reshape(-1, 6).T
    return _Rows(
        names,
        pairs // max(total, 1),
        pairs % max(total, 1),
        places,
        Due(number[split:], *table[1:]),
        Owned(number[:split], Groups(*map(np.concatenate, zip(*groups))))
        if groups
        else Owned.none(),
    )


def _note_lacks(
    subjects: Mapping[int, Subject], rows: _Rows, extra: Int64Array
) -> tuple[Int64Array, Owned]:
    """Note what is missing in each place, add how much to `extra`; return (ledger of each place,
    what is missing by place).
    """
    whose = rows.ledger[rows.due.ledger]
    asked = rows.held.take(np.isin(rows.held.owner, rows.due.ledger))
    parts = list(missing_groups(rows.due, Held(*asked)))
    if not parts:
        return whose, Owned.none()
    owner, groups = zip(*parts)
    lacks = fold_many(Owned(np.concatenate(owner), Groups(*map(np.concatenate, zip(*groups)))))
    counts = count(lacks, len(rows.places))
    np.add.at(extra, rows.due.ledger, counts)
    starts = run_starts(lacks.owner)
    bounds = np.append(starts, lacks.owner.size).tolist()
    for at, lo, hi in zip(lacks.owner[starts].tolist(), bounds, bounds[1:]):
        place = rows.places[at]
        subject = subjects[place.ledger]
        subject.missing += int(counts[at])
        gone = Availability.from_canonical(Groups(*(column[lo:hi] for column in lacks.groups)))
        subject.lacks.append(MissingReplicas(place.first, place.ensemble, place.place, gone))
    return whose, lacks


def _due_counts(due: Due) -> Int64Array:
    """Return how many entries each row asks for; arithmetic, O(rows)."""
    size, quorum = due.ensemble_size, due.write_quorum
    span = due.last - due.first + 1
    into = (due.first - due.bookie_index + quorum - 1) % size
    whole, rest = span // size, span % size
    ends = into + rest
    part = np.minimum(quorum, ends) - np.minimum(quorum, into)
    found: Int64Array = whole * quorum + part + np.clip(ends - size, 0, quorum)
    return found


def _beyond(rows: _Rows, pair: int) -> Availability:
    """Return what a ledger of a bookie has that is not due there."""
    lo, hi = np.searchsorted(rows.held.owner, [pair, pair + 1])
    here = Availability.from_canonical(Groups(*(column[lo:hi] for column in rows.held.groups)))
    lo, hi = np.searchsorted(rows.due.ledger, [pair, pair + 1])
    if lo == hi:
        return here
    due = Due(*(column[lo:hi] for column in rows.due))
    return here - Availability.from_canonical(fold(expected_many(*due[1:])))


def shortages(ledger: Int64Array, place: Int64Array, missing: Owned) -> dict[int, Shortage]:
    """Return how many replicas the worst entry of each ledger lacks, as `durability.shortage`.

    `missing.owner` is a row: which `ledger`, and at which `place` in a segment's ensemble.
    Segments of a ledger do not overlap, so that what is missing at one place does not either.
    O(groups x E x W) array work, however many ledgers there are.
    """
    layers: list[Owned] = []  # layer k: the entries of each ledger that k + 1 bookies lack
    whose, where = ledger[missing.owner], place[missing.owner]
    for at in np.unique(where).tolist():
        rows = np.flatnonzero(where == at)
        rows = rows[np.lexsort((missing.groups.first[rows], whose[rows]))]
        carry = Owned(whose[rows], missing.groups.take(rows))
        for number, layer in enumerate(layers):
            layers[number], carry = combined(layer, carry, "or"), combined(layer, carry, "and")
        if carry.owner.size:
            layers.append(carry)
    found: dict[int, Shortage] = {}
    for depth, layer in enumerate(layers, 1):
        heads = run_starts(layer.owner)
        firsts = layer.groups.first[heads].tolist()
        for name, first in zip(layer.owner[heads].tolist(), firsts):
            found[name] = Shortage(depth, first)
    return found
