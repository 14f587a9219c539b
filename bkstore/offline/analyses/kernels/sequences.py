"""Kernels over sorted Arrow batches: sequences of ledgers, and two dumps side by side.

A kernel is a callable from batches to batches that can be pickled. It carries what it needs
over their borders, so that it does not matter where they are cut; the local reader and Spark's
`mapInArrow` feed the same ones. That of ledger metadata is in `judge`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import codec
from bkstore.availability.sequence_groups import Groups
from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.index_columns import codes, entry_ids, int64
from bkstore.offline.analyses.kernels.ledgers_side_by_side import (
    Owned,
    common,
    condense,
    count,
    fold_many,
)
from bkstore.offline.analyses.kernels.whole_ledger_blocks import ledger_groups
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import COMPARISON, GROUPS, SEQUENCES, Table

if TYPE_CHECKING:
    import pyarrow as pa


class Condense:
    """Entries to groups: batches of (bookie, scope_id, ledger_id, entry_id) to `groups` rows.

    The groups are those of each stretch of rows that are of one ledger and in one batch:
    `Sequences` puts them together, so the rows may come in any order. With `bookie` given all
    rows are that one's, and the column is not looked at. O(entries).
    """

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `groups`."""
        for batch in batches:
            if not batch.num_rows:
                continue
            scope, ledger = int64(batch, "scope_id"), int64(batch, "ledger_id")
            entries = entry_ids(batch)
            keys = [scope, ledger]
            if self.bookie is None:
                keys.append(codes(batch, "bookie")[0])
            starts = run_starts(*keys)
            owner = np.repeat(starts, np.diff(np.append(starts, entries.size)))
            yield self._groups(batch, condense(owner, entries))

    def _groups(self, batch: pa.RecordBatch, found: Owned) -> pa.RecordBatch:
        """Return `groups` rows; an owner is the number of a row that has its ids."""
        import pyarrow as pa

        rows = pa.array(found.owner)
        if self.bookie is None:
            bookie = batch.column("bookie").take(rows)
        else:
            bookie = pa.repeat(pa.scalar(self.bookie), len(rows))
        ids = [batch.column(name).take(rows) for name in GROUPS.names[1:3]]
        columns = [bookie, *ids, *map(pa.array, found.groups)]
        return pa.RecordBatch.from_arrays(columns, schema=GROUPS.to_arrow())


class Sequences:
    """Groups to `sequences` rows: the availability of every ledger of every bookie, as bytes.

    Rows of `groups`, sorted by bookie and ledger, then by first sequence. O(groups).
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `sequences`."""
        for block in ledger_groups(batches):
            found = fold_many(block.groups)
            first = run_starts(found.owner)
            bounds = np.append(first, found.owner.size)
            made: dict[str, Any] = {
                **block.ids(),
                "entries": count(found, block.starts.size),
                "first_entry": found.groups.first[first],
                "last_entry": found.groups.ends[bounds[1:] - 1] - 1,
                "sequences": np.add.reduceat(found.groups.counts, first),
                "groups": np.diff(bounds),
                "availability": [
                    codec.encode(Groups(*(column[lo:hi] for column in found.groups)))
                    for lo, hi in zip(bounds[:-1].tolist(), bounds[1:].tolist())
                ],
            }
            yield from Table(SEQUENCES, made).to_arrow().to_batches()


class CondensedSequences:
    """Entries to `sequences` rows, of rows that come by ledger. O(entries)."""

    def __init__(self, bookie: str | None = None) -> None:
        self._condense = Condense(bookie)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `sequences`."""
        yield from Sequences()(self._condense(batches))


class Compare:
    """Groups of two dumps to `comparison` rows.

    Rows of `groups` and `side` (0 before, 1 after), sorted by bookie, ledger, side and first
    sequence. With `bookie` given all rows are that one's, and the column is not looked at. Set
    algebra on groups: O(groups), entries are not taken apart.
    """

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `comparison`."""
        for block in ledger_groups(batches, self.bookie):
            side, ledgers = int64(block.rows, "side"), block.starts.size
            here, there = (fold_many(block.groups.take(side == each)) for each in (0, 1))
            before, after = count(here, ledgers), count(there, ledgers)
            both = common(here, there, ledgers)
            made: dict[str, Any] = {
                **block.ids(),
                "before": before,
                "after": after,
                "common": both,
                "added": after - both,
                "removed": before - both,
                "change": _changes(before, after, both),
            }
            yield from Table(COMPARISON, made).to_arrow().to_batches()


def _changes(before: Int64Array, after: Int64Array, both: Int64Array) -> list[str]:
    conditions = [before == 0, after == 0, (before == both) & (after == both)]
    names = ["new", "gone", "same", "grown", "shrunk"]
    found = np.select([*conditions, before == both, after == both], names, "changed")
    return found.tolist()  # type: ignore[no-any-return]
