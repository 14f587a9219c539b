"""Arrow batches cut anywhere, as blocks in which every ledger is whole.

What a kernel needs of sorted rows: all of a ledger at once. The rows behind the last border of
a batch wait for the next one, so memory is a block, or the rows of the longest ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.index_columns import codes, int64
from bkstore.offline.analyses.kernels.ledgers_side_by_side import opens

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["whole_blocks"]

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
        at = int(opens(*(_key(whole, key) for key in keys))[-1])
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
