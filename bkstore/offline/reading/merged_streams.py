"""Merging sorted streams into blocks, each with all rows of its ledgers from all streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, ledger_pair_at
from bkstore.offline.reading.row_stream import search_ledger

if TYPE_CHECKING:
    import pyarrow as pa

SIDE_COLUMN = "side"
"""The column that is added: the number of the stream that a row is from."""


def merge_sorted_streams(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all streams, sorted by ledger and then stream, with column `SIDE_COLUMN`.

    Streams must be sorted by ledger. Memory: a batch of each, or the rows of the longest ledger.
    """
    sides = [_Stream(number, stream) for number, stream in enumerate(streams)]
    while True:
        for stream in sides:
            stream.fill()
        ends = [stream.end for stream in sides if stream.end is not None]
        # Each stream has all its rows of the ledgers before its last waiting one: what is before
        # the lowest of these is complete in all streams.
        limit = min(ends, default=None)
        batches = [batch for stream in sides if (batch := stream.take_before(limit)) is not None]
        if batches:
            yield _merge_by_ledger(batches)
        elif limit is None:
            return
        else:
            for stream in sides:
                if stream.end == limit:
                    stream.read_batch()


class _Stream:
    """A stream with its waiting rows, which were read but not yet taken."""

    def __init__(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        self._number = number
        self._batches = batches
        self._waiting: pa.RecordBatch | None = None
        self._keys: tuple[Int64Array, Int64Array] | None = None
        self._has_ended = False
        self.end: tuple[int, int] | None = None
        """The last waiting ledger; None after the end of the stream."""

    def fill(self) -> None:
        """Read a batch if no rows are waiting."""
        if self._waiting is None and not self._has_ended:
            self.read_batch()

    def read_batch(self) -> None:
        """Read a batch and append it to the waiting rows."""
        import pyarrow as pa

        batch = next((candidate for candidate in self._batches if candidate.num_rows), None)
        if batch is None:
            self._has_ended, self.end = True, None
            return
        if self._waiting is not None:
            (batch,) = pa.Table.from_batches([self._waiting, batch]).combine_chunks().to_batches()
        self._set_waiting(batch)

    def _set_waiting(self, batch: pa.RecordBatch) -> None:
        self._waiting = batch
        scope, ledger = (batch.column(name).to_numpy() for name in LEDGER_COLUMNS)
        self._keys = scope, ledger
        if not self._has_ended:
            self.end = ledger_pair_at(scope, ledger, -1)

    def take_before(self, limit: tuple[int, int] | None) -> pa.RecordBatch | None:
        """Remove and return the waiting rows of ledgers before `limit` (None: all)."""
        import pyarrow as pa

        if self._waiting is None or self._keys is None:
            return None
        waiting_rows = self._waiting.num_rows
        row_count = waiting_rows if limit is None else search_ledger(*self._keys, limit, "left")
        if not row_count:
            return None
        taken = self._waiting.slice(0, row_count)
        if row_count == waiting_rows:
            self._waiting = self._keys = None
        else:
            self._set_waiting(self._waiting.slice(row_count))
        side_column = pa.array(np.full(row_count, self._number, np.int32))
        return taken.append_column(SIDE_COLUMN, side_column)


def _merge_by_ledger(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    scope, ledger = (batch.column(name).to_numpy().view(np.uint64) for name in LEDGER_COLUMNS)
    order = np.lexsort((ledger, scope))  # stable: within a ledger streams stay in order
    return batch.take(pa.array(order))
