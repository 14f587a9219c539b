"""Ledger metadata against what bookies hold: `violations`, `ledger_health`, `surplus`, `homeless`.

The rules are the auditor's (`bkstore.cluster.audit`), and so is the set algebra; only the way
in differs: rows of many ledgers and bookies, sorted by ledger, instead of questions. A bookie
that is not in the dump, or a ledger of it that could not be read, says nothing: what is due
there is not judged, and never missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.availability.grouping import fold
from bkstore.availability.sequence_groups import Groups
from bkstore.cluster.audit.durability import Due, Held, due_places, missing_entries, shortage
from bkstore.cluster.audit.report import Category, Violation, category_of
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.ledgers_side_by_side import Owned, count, fold_many, opens
from bkstore.offline.analyses.metadata_table import LedgerSaid
from bkstore.offline.analyses.whole_ledger_blocks import codes, int64, whole_blocks
from bkstore.schedule import expected_many
from bkstore.tables import GROUPS, HEALTH, HOMELESS, SURPLUS, VIOLATIONS, Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GROUPS_ROW", "METADATA_ROW", "UNREAD_ROW", "Judge"]

METADATA_ROW, UNREAD_ROW, GROUPS_ROW = 0, 1, 2
"""The `role` of a row: a ledger's metadata, a bookie that could not read it, a group."""

Output = Literal["violations", "ledger_health", "surplus", "homeless"]
Row = tuple[Any, ...]
_KEYS = ("scope_id", "ledger_id")


class _Lack(NamedTuple):
    """Entries that the bookie at `place` of the segment that begins at `first` lacks."""

    first: int
    ensemble: list[str]
    place: int
    missing: Availability


@dataclass(slots=True)
class _Subject:
    """A ledger of the block: what is said of it, and what comes of that."""

    ledger: LedgerId
    said: LedgerSaid
    due: int = 0
    missing: int = 0
    held: bool = False
    unread: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    lacks: list[_Lack] = field(default_factory=list)
    surplus: list[tuple[str, Availability]] = field(default_factory=list)

    @property
    def names(self) -> tuple[int, int, str]:
        """Its id columns."""
        return (*self.ledger.signed, self.ledger.qualified_name)


class Judge:
    """The kernel: what `output` says of the ledgers that come, metadata row first.

    Columns: scope_id, ledger_id, role, bookie, the four of a group, said; sorted by ledger,
    role, bookie and first sequence. `bookies` are those that were read. Ledgers without a
    metadata row are passed over. Costs: python steps for each ledger, segment and bookie, as
    in an audit; O(groups) array work.
    """

    def __init__(self, output: Output, bookies: Iterable[str]) -> None:
        self.output = output
        self.bookies = frozenset(bookies)

    @property
    def schema(self) -> Schema:
        """The table that comes out."""
        return _OUTPUTS[self.output][0]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the output's table."""
        schema, rows_of = _OUTPUTS[self.output]
        for block in whole_blocks(batches, _KEYS):
            judged = _judge(block, self.bookies)
            rows = [row for subject in judged for row in rows_of(subject)]
            if rows:
                yield from Table.from_rows(schema, rows).to_arrow().to_batches()


def _judge(block: pa.RecordBatch, bookies: frozenset[str]) -> list[_Subject]:
    scope, ledger, role = (int64(block, name) for name in (*_KEYS, "role"))
    starts = opens(scope, ledger)
    owner = np.repeat(np.arange(starts.size), np.diff(np.append(starts, role.size)))
    subjects = _subjects(block, scope, ledger, role, owner)
    number, names = codes(block, "bookie")
    for row in np.flatnonzero(role == UNREAD_ROW).tolist():
        subject = subjects.get(int(owner[row]))
        if subject is not None:
            subject.unread.add(names[number[row]])
    due = _due_rows(subjects, bookies)
    held = _held_rows(block, role, owner, number, names)
    for bookie in sorted({*due, *held}):
        rows = held.get(bookie, Owned.none())
        _note(subjects, bookie, due.get(bookie, []), rows)
    return [subject for _, subject in sorted(subjects.items())]


def _subjects(
    block: pa.RecordBatch,
    scope: Int64Array,
    ledger: Int64Array,
    role: Int64Array,
    owner: Int64Array,
) -> dict[int, _Subject]:
    """Return the ledgers of which there are metadata, by number in the block."""
    import pyarrow as pa

    rows = np.flatnonzero(role == METADATA_ROW)
    said = block.column("said").take(pa.array(rows)).to_pylist()
    ids = zip(owner[rows].tolist(), scope[rows].tolist(), ledger[rows].tolist(), said)
    return {
        at: _Subject(LedgerId.from_signed(its_scope, its_ledger), LedgerSaid.from_json(text))
        for at, its_scope, its_ledger, text in ids
    }


class _DueRow(NamedTuple):
    """A place in a segment that entries go to, with the columns of `Due` in front."""

    ledger: int
    first: int
    last: int
    place: int
    size: int
    quorum: int
    ensemble: list[str]


def _due_rows(subjects: dict[int, _Subject], bookies: frozenset[str]) -> dict[str, list[_DueRow]]:
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


def _held_rows(
    block: pa.RecordBatch,
    role: Int64Array,
    owner: Int64Array,
    number: Int64Array,
    names: list[str],
) -> dict[str, Owned]:
    """Return the groups of each bookie, by number of the ledger."""
    rows = np.flatnonzero(role == GROUPS_ROW)
    order = rows[np.argsort(number[rows], kind="stable")]
    of_bookie = number[order]
    starts = opens(of_bookie)
    bounds = np.append(starts, order.size).tolist()
    columns = [int64(block, name) for name in GROUPS.names[3:]]
    found = {}
    for at, (lo, hi) in enumerate(pairwise(bounds)):
        here = order[lo:hi]
        groups = Groups(*(column[here] for column in columns))
        found[names[of_bookie[starts[at]]]] = fold_many(Owned(owner[here], groups))
    return found


def _note(subjects: dict[int, _Subject], bookie: str, rows: list[_DueRow], held: Owned) -> None:
    """Note what one bookie lacks of each ledger, and what it has beyond."""
    total = max(subjects, default=-1) + 1
    if held.owner.size:
        total = max(total, int(held.owner[-1]) + 1)
    extra = count(held, total)
    for number in held.owner[opens(held.owner)].tolist():
        if number in subjects:
            subjects[number].held = True
    if rows:
        due = Due(*np.array([row[:6] for row in rows], np.int64).T)
        dues = _due_counts(due)
        np.subtract.at(extra, due.ledger, dues)
        for row, entries in zip(rows, dues.tolist()):
            subjects[row.ledger].due += entries
        ours = np.isin(held.owner, due.ledger)
        here = held.take(ours)
        for at, missing in missing_entries(due, Held(here.owner, here.groups)):
            row = rows[at]
            subject = subjects[row.ledger]
            subject.missing += len(missing)
            subject.lacks.append(_Lack(row.first, row.ensemble, row.place, missing))
            extra[row.ledger] += len(missing)
    for number in np.flatnonzero(extra > 0).tolist():
        found = subjects.get(number)
        if found is not None and found.said.skip is None and bookie not in found.unread:
            lo, hi = np.searchsorted(held.owner, [number, number + 1])
            groups = held.groups.take(np.arange(lo, hi))
            found.surplus.append((bookie, _beyond(groups, _rows_of(rows, number))))


def _rows_of(rows: list[_DueRow], number: int) -> list[_DueRow]:
    """Return the rows of one ledger; ledgers ascend."""
    lo = bisect_left(rows, number, key=lambda row: row.ledger)
    return rows[lo : bisect_left(rows, number + 1, key=lambda row: row.ledger)]


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


def _beyond(held: Groups, rows: list[_DueRow]) -> Availability:
    """Return what is held and not due."""
    here = Availability.from_canonical(held)
    if not rows:
        return here
    due = Due(*np.array([row[:6] for row in rows], np.int64).T)
    return here - Availability.from_canonical(fold(expected_many(*due[1:])))


# -- rows


def _violations(subject: _Subject) -> Iterator[Row]:
    verdict = _verdict(subject)
    if verdict is None:
        return
    category, entry, missing = verdict
    quorum, ack = subject.said.write_quorum, subject.said.ack_quorum
    for lack in sorted(subject.lacks, key=lambda each: (each.first, each.ensemble[each.place])):
        detail = (
            f"index {lack.place} of {' '.join(lack.ensemble)}; W {quorum}, A {ack}; "
            f"entry {entry} of the ledger lacks {missing} of {quorum} replicas"
        )
        bookie = lack.ensemble[lack.place]
        yield Violation(category, subject.ledger, lack.first, bookie, lack.missing, detail).row()


def _verdict(subject: _Subject) -> tuple[Category, int, int] | None:
    """Return the ledger's category, its worst entry, and how many replicas that one lacks."""
    worst = shortage(lack.missing for lack in subject.lacks)
    if worst is None:
        return None
    said = subject.said
    left = said.write_quorum - worst.missing
    return category_of(left, said.write_quorum, said.ack_quorum), worst.entry, worst.missing


def _health(subject: _Subject) -> Iterator[Row]:
    said = subject.said
    counts: Row = (None,) * 5
    reason = said.skip
    if reason is None:
        verdict = _verdict(subject)
        fewest = None
        if subject.due:
            fewest = said.write_quorum - (verdict[2] if verdict else 0)
        extra = sum(len(found) for _, found in subject.surplus)
        category = verdict[0] if verdict else None
        counts = (subject.due, subject.missing, extra, fewest, category)
        reason = _unjudged(subject)
    yield (
        *subject.names,
        said.state,
        said.ensemble_size,
        said.write_quorum,
        said.ack_quorum,
        len(said.segments),
        said.last_entry,
        *counts,
        reason,
    )


def _unjudged(subject: _Subject) -> str | None:
    parts = []
    if subject.absent:
        parts.append(f"bookies not in the dump: {' '.join(sorted(subject.absent))}")
    if subject.unread:
        parts.append(f"could not be read at: {' '.join(sorted(subject.unread))}")
    return "; ".join(parts) or None


def _surplus(subject: _Subject) -> Iterator[Row]:
    for bookie, found in sorted(subject.surplus, key=lambda each: each[0]):
        yield bookie, *subject.names, len(found), found.groups.tolist()


def _homeless(subject: _Subject) -> Iterator[Row]:
    if subject.due and not subject.held and not subject.unread:
        said = subject.said
        bookies = " ".join(sorted({name for _, who in said.segments for name in who}))
        yield *subject.names, said.state, said.last_entry, bookies


_OUTPUTS: dict[str, tuple[Schema, Any]] = {
    "violations": (VIOLATIONS, _violations),
    "ledger_health": (HEALTH, _health),
    "surplus": (SURPLUS, _surplus),
    "homeless": (HOMELESS, _homeless),
}
