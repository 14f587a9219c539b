"""Sorted Arrow batches re-cut into blocks that do not split a ledger. A kernel needs all rows of a
ledger at once. The rows of the last ledger in a batch wait for the next batch, so memory is a
block, or the rows of the longest ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.groups_by_owner import GroupsByOwner
from bkstore.offline.analyses.kernels.index_columns import dictionary_codes, int64, read_groups
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 1 << 16


def cut_blocks(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], rows: int = _BLOCK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield batches of about `rows` rows or more, cut only where a column of `keys` changes: the
    rows of one key, which must be adjacent, are in one batch."""
    import pyarrow as pa

    waiting_batches: list[pa.RecordBatch] = []
    waiting_rows, limit = 0, rows
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting_batches.append(batch)
        waiting_rows += batch.num_rows
        if waiting_rows < limit:
            continue
        merged = _merge_batches(pa.Table.from_batches(waiting_batches))
        last_start = int(run_starts(*(_key_numbers(merged, key) for key in keys))[-1])
        if last_start:
            yield merged.slice(0, last_start)
        # The rows of the last key wait, as the next batch may have more of them.
        waiting_batches, waiting_rows = [merged.slice(last_start)], waiting_rows - last_start
        # If all rows are of one ledger, look for its end only after twice as many rows.
        limit = rows if last_start else 2 * waiting_rows
    if waiting_rows:
        yield _merge_batches(pa.Table.from_batches(waiting_batches))


def _merge_batches(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _key_numbers(batch: pa.RecordBatch, name: str) -> Int64Array:
    """Return a key column as numbers; texts are replaced by their codes."""
    import pyarrow as pa

    if pa.types.is_integer(batch.schema.field(name).type):
        return int64(batch, name)
    return dictionary_codes(batch, name)[0]


def qualified_names(scopes: Iterable[int], ledgers: Iterable[int]) -> list[str]:
    """Return the qualified name of each ledger, from signed ids as in tables."""
    return [f"{scope % 2**64:016x}{ledger % 2**64:016x}" for scope, ledger in zip(scopes, ledgers)]


class LedgerBlock(NamedTuple):
    """Whole ledgers of bookies, as `rows` of table `groups`; `starts` are their first rows. The
    owners of `groups` are ledger numbers. Row n is of `bookies[bookie_codes[n]]`."""

    rows: pa.RecordBatch
    starts: Int64Array
    groups: GroupsByOwner
    bookie_codes: Int64Array
    bookies: list[str]

    def id_columns(self, chosen: Int64Array | None = None) -> dict[str, list[Any]]:
        """Return the id columns of the ledgers, or of those with the chosen numbers."""
        first_rows = self.starts if chosen is None else self.starts[chosen]
        scopes, ledgers = (int64(self.rows, name)[first_rows].tolist() for name in LEDGER_COLUMNS)
        return {
            "bookie": [self.bookies[code] for code in self.bookie_codes[first_rows]],
            "scope_id": scopes,
            "ledger_id": ledgers,
            "qualified_name": qualified_names(scopes, ledgers),
        }


def cut_ledger_blocks(
    batches: Iterator[pa.RecordBatch], bookie: str | None = None
) -> Iterator[LedgerBlock]:
    """Yield blocks of whole ledgers, from rows sorted by bookie and ledger. With `bookie` given,
    all rows belong to it and the bookie column is not read."""
    keys = LEDGER_COLUMNS if bookie is not None else ("bookie", *LEDGER_COLUMNS)
    for rows in cut_blocks(batches, keys):
        if bookie is None:
            bookie_codes, bookies = dictionary_codes(rows, "bookie")
        else:
            bookie_codes, bookies = np.zeros(rows.num_rows, np.int64), [bookie]
        starts = run_starts(bookie_codes, int64(rows, "scope_id"), int64(rows, "ledger_id"))
        owner = np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows.num_rows)))
        groups = GroupsByOwner(owner, read_groups(rows))
        yield LedgerBlock(rows, starts, groups, bookie_codes, bookies)
