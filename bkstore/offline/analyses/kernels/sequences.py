"""Kernels over sorted Arrow batches: sequences of ledgers, and the comparison of two dumps.

A kernel is a callable from batches to batches that can be pickled. It carries state from batch to
batch, so batches may be cut anywhere; the local engine and Spark's `mapInArrow` run the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import codec
from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.batch_blocks import cut_ledger_blocks
from bkstore.offline.analyses.kernels.groups_by_owner import (
    GroupsByOwner,
    condense_by_owner,
    count_common,
    count_entries,
    fold_many,
)
from bkstore.offline.analyses.kernels.index_columns import dictionary_codes, entry_ids, int64
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts
from bkstore.tables import COMPARISON, GROUPS, SEQUENCES, Table

if TYPE_CHECKING:
    import pyarrow as pa


class Condense:
    """Entries to groups: batches of (bookie, scope_id, ledger_id, entry_id) to `groups` rows. Rows
    may come in any order; `Sequences` merges the groups of each batch. With `bookie` given, all
    rows belong to it and the column is not read. O(entries)."""

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `groups`."""
        for batch in batches:
            if not batch.num_rows:
                continue
            scope_id, ledger_id = int64(batch, "scope_id"), int64(batch, "ledger_id")
            entry_id = entry_ids(batch)
            keys = [scope_id, ledger_id]
            if self.bookie is None:
                keys.append(dictionary_codes(batch, "bookie")[0])
            # Adjacent rows of one ledger are a set, whose owner is the number of the first row.
            starts = run_starts(*keys)
            owner = np.repeat(starts, np.diff(np.append(starts, entry_id.size)))
            yield self._group_rows(batch, condense_by_owner(owner, entry_id))

    def _group_rows(self, batch: pa.RecordBatch, groups: GroupsByOwner) -> pa.RecordBatch:
        """Return `groups` rows; an owner is the number of a row of `batch` that has its ids."""
        import pyarrow as pa

        rows = pa.array(groups.owner)
        if self.bookie is None:
            bookie = batch.column("bookie").take(rows)
        else:
            bookie = pa.repeat(pa.scalar(self.bookie), len(rows))
        ids = [batch.column(name).take(rows) for name in LEDGER_COLUMNS]
        columns = [bookie, *ids, *map(pa.array, groups.groups)]
        return pa.RecordBatch.from_arrays(columns, schema=GROUPS.to_arrow())


class Sequences:
    """Groups, sorted by bookie, ledger and first sequence, to `sequences` rows. O(groups)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `sequences`."""
        for block in cut_ledger_blocks(batches):
            # The canonical groups of ledger n of the block are bounds[n] to before bounds[n + 1].
            folded = fold_many(block.groups)
            starts = run_starts(folded.owner)
            bounds = np.append(starts, folded.owner.size)
            columns: dict[str, Any] = {
                **block.id_columns(),
                "entries": count_entries(folded, block.starts.size),
                "first_entry": folded.groups.first[starts],
                "last_entry": folded.groups.ends[bounds[1:] - 1] - 1,
                "sequences": np.add.reduceat(folded.groups.counts, starts),
                "groups": np.diff(bounds),
                "availability": [
                    codec.encode(folded.cut(start, end).groups)
                    for start, end in pairwise(bounds.tolist())
                ],
            }
            yield from Table(SEQUENCES, columns).to_arrow().to_batches()


class CondensedSequences:
    """Entries to `sequences` rows, from rows sorted by ledger. O(entries)."""

    def __init__(self, bookie: str | None = None) -> None:
        self._condense = Condense(bookie)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `sequences`."""
        yield from Sequences()(self._condense(batches))


class Compare:
    """Groups of two dumps to `comparison` rows. O(groups): no expansion to entries. Input: rows of
    `groups` with a column `side` (0 before, 1 after), sorted by bookie, ledger, side and first
    sequence. With `bookie` given, all rows belong to it and the column is not read."""

    def __init__(self, bookie: str | None = None) -> None:
        self.bookie = bookie

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `comparison`."""
        for block in cut_ledger_blocks(batches, self.bookie):
            side, ledger_count = int64(block.rows, "side"), block.starts.size
            groups_before = fold_many(block.groups.take(side == 0))
            groups_after = fold_many(block.groups.take(side == 1))
            before = count_entries(groups_before, ledger_count)
            after = count_entries(groups_after, ledger_count)
            in_both = count_common(groups_before, groups_after, ledger_count)
            columns: dict[str, Any] = {
                **block.id_columns(),
                "before": before,
                "after": after,
                "common": in_both,
                "added": after - in_both,
                "removed": before - in_both,
                "change": _change_kinds(before, after, in_both),
            }
            yield from Table(COMPARISON, columns).to_arrow().to_batches()


def _change_kinds(before: Int64Array, after: Int64Array, in_both: Int64Array) -> list[str]:
    """Return the kind of change of each ledger, from its entry counts before, after, in both."""
    conditions = [before == 0, after == 0, (before == in_both) & (after == in_both)]
    names = ["new", "gone", "same", "grown", "shrunk"]
    kinds = np.select([*conditions, before == in_both, after == in_both], names, "changed")
    return kinds.tolist()  # type: ignore[no-any-return]
