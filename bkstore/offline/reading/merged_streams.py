"""Merging sorted streams into blocks, each with all rows of its ledgers from all streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, ledger_pair_at, search_ledger

if TYPE_CHECKING:
    import pyarrow as pa

SIDE_COLUMN = "side"
"""The column that is added: the number of the stream (of a side, if two dumps are compared)."""


def merge_sorted_streams(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all streams, by ledger and then stream, with its number in `SIDE_COLUMN`.

    Streams must be sorted by ledger. Memory: a batch of each, or the rows of the longest ledger.
    """
    waiting = [_Stream(number, batches) for number, batches in enumerate(streams)]
    while True:
        for stream in waiting:
            stream.fill()
        last_ledgers = [s.last_ledger for s in waiting if s.last_ledger is not None]
        # A stream may have more rows of its last waiting ledger, but none of the ledgers before it.
        # So the ledgers before the lowest of the last ledgers are complete in all streams.
        limit = min(last_ledgers, default=None)
        batches = [batch for stream in waiting if (batch := stream.take_before(limit)) is not None]
        if batches:
            yield _merge_by_ledger(batches)
        elif limit is None:
            return
        else:  # no row is before `limit`: read on where all waiting rows are of this ledger
            for stream in waiting:
                if stream.last_ledger == limit:
                    stream.read_batch()


class _Stream:
    """A stream with its waiting rows, which are read but not yet taken by `take_before`, and their
    ledgers."""

    def __init__(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        self._number = number
        self._batches = batches
        self._waiting: pa.RecordBatch | None = None
        self._ledger_columns: tuple[Int64Array, Int64Array] | None = None
        self._has_ended = False
        self.last_ledger: tuple[int, int] | None = None
        """The last waiting ledger; None after the end of the stream."""

    def fill(self) -> None:
        """Read a batch if no rows are waiting."""
        if self._waiting is None and not self._has_ended:
            self.read_batch()

    def read_batch(self) -> None:
        """Read the next batch with rows, and append it to the waiting rows, which are read but not
        yet taken. At the end of the stream, note that instead."""
        import pyarrow as pa

        batch = next((candidate for candidate in self._batches if candidate.num_rows), None)
        if batch is None:
            self._has_ended, self.last_ledger = True, None
            return
        if self._waiting is not None:
            (batch,) = pa.Table.from_batches([self._waiting, batch]).combine_chunks().to_batches()
        self._set_waiting(batch)

    def _set_waiting(self, batch: pa.RecordBatch) -> None:
        """Make a batch the waiting rows. The next batch may have more rows of its last ledger. At
        the end of the stream there is no next batch: `last_ledger` stays None."""
        self._waiting = batch
        scope, ledger = (batch.column(name).to_numpy() for name in LEDGER_COLUMNS)
        self._ledger_columns = scope, ledger
        if not self._has_ended:
            self.last_ledger = ledger_pair_at(scope, ledger, -1)

    def take_before(self, limit: tuple[int, int] | None) -> pa.RecordBatch | None:
        """Remove and return the waiting rows of ledgers before `limit` (None: all)."""
        import pyarrow as pa

        if self._waiting is None or self._ledger_columns is None:
            return None
        row_count = waiting_rows = self._waiting.num_rows
        if limit is not None:
            row_count = search_ledger(*self._ledger_columns, limit, side="left")
        if not row_count:
            return None
        taken = self._waiting.slice(0, row_count)
        if row_count == waiting_rows:
            self._waiting = self._ledger_columns = None
        else:
            self._set_waiting(self._waiting.slice(row_count))
        stream_numbers = pa.array(np.full(row_count, self._number, np.int32))
        return taken.append_column(SIDE_COLUMN, stream_numbers)


def _merge_by_ledger(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of sorted batches in one, by ledger; those of a ledger by batch."""
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    scope, ledger = (batch.column(name).to_numpy().view(np.uint64) for name in LEDGER_COLUMNS)
    order = np.lexsort((ledger, scope))  # stable: within a ledger streams stay in order
    return batch.take(pa.array(order))
