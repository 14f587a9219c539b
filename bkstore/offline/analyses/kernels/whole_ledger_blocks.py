"""Arrow batches cut anywhere, as blocks in which every ledger is whole.

What a kernel needs of sorted rows: all of a ledger at once. The rows behind the last border of
a batch wait for the next one, so memory is a block, or the rows of the longest ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.index_columns import codes, groups_of, int64
from bkstore.offline.analyses.kernels.ledgers_side_by_side import Owned
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 16


def whole_blocks(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], rows: int = _ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows as batches of about `rows` or more in which no key is cut.

    Of the order only this is asked: rows of one key follow each other.
    """
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size, limit = 0, rows
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.num_rows
        if size < limit:
            continue
        whole = _together(pa.Table.from_batches(waiting))
        at = int(run_starts(*(_key(whole, key) for key in keys))[-1])
        if at:
            yield whole.slice(0, at)
        waiting, size = [whole.slice(at)], size - at
        # One ledger only: look for its end again when there is twice as much of it.
        limit = rows if at else 2 * size
    if size:
        yield _together(pa.Table.from_batches(waiting))


def _together(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _key(batch: pa.RecordBatch, name: str) -> Int64Array:
    import pyarrow as pa

    if pa.types.is_integer(batch.schema.field(name).type):
        return int64(batch, name)
    return codes(batch, name)[0]


def qualified_names(scopes: Iterable[int], ledgers: Iterable[int]) -> list[str]:
    """Return the qualified name of each ledger, ids as tables carry them."""
    return [f"{scope % 2**64:016x}{ledger % 2**64:016x}" for scope, ledger in zip(scopes, ledgers)]


class LedgerGroups(NamedTuple):
    """The groups of ledgers of bookies: `rows` of `groups`, in which no ledger is cut.

    `starts` are the first rows of the ledgers, int64[n]; `groups` belong to ledgers by number.
    """

    rows: pa.RecordBatch
    starts: Int64Array
    groups: Owned
    bookie: Int64Array
    bookies: list[str]

    def ids(self, chosen: Int64Array | None = None) -> dict[str, list[Any]]:
        """Return the columns that name the ledgers, or those of the chosen numbers."""
        at = self.starts if chosen is None else self.starts[chosen]
        scopes, ledgers = (int64(self.rows, n)[at].tolist() for n in ("scope_id", "ledger_id"))
        return {
            "bookie": [self.bookies[each] for each in self.bookie[at]],
            "scope_id": scopes,
            "ledger_id": ledgers,
            "qualified_name": qualified_names(scopes, ledgers),
        }


def ledger_groups(
    batches: Iterator[pa.RecordBatch], bookie: str | None = None
) -> Iterator[LedgerGroups]:
    """Yield the groups of whole ledgers, from rows that come by bookie and ledger.

    With `bookie` given all rows are that one's, and the column is not looked at.
    """
    for rows in whole_blocks(batches, GROUPS.names[0 if bookie is None else 1 : 3]):
        if bookie is None:
            numbers, names = codes(rows, "bookie")
        else:
            numbers, names = np.zeros(rows.num_rows, np.int64), [bookie]
        starts = run_starts(numbers, int64(rows, "scope_id"), int64(rows, "ledger_id"))
        owner = np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows.num_rows)))
        yield LedgerGroups(rows, starts, Owned(owner, groups_of(rows)), numbers, names)
