"""Several sorted streams side by side: blocks in which every ledger of all of them is whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array
from bkstore.offline.reading.ledger_ranges import ledger_at
from bkstore.offline.reading.row_stream import behind

if TYPE_CHECKING:
    import pyarrow as pa

SIDE = "side"
"""The column that is added: from which stream a row is."""


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all streams by ledger, those of a ledger by stream, `SIDE` added.

    Each stream is sorted by ledger. Memory: a batch of each stream, or the longest ledger's rows.
    """
    waiting = [_Stream(number, stream) for number, stream in enumerate(streams)]
    while True:
        for stream in waiting:
            stream.fill()
        ends = [stream.end for stream in waiting if stream.end is not None]
        # What lies before the last ledger that any stream has shown so far is whole everywhere.
        limit = min(ends, default=None)
        parts = [part for stream in waiting if (part := stream.before(limit)) is not None]
        if parts:
            yield _by_ledger(parts)
        elif limit is None:
            return
        else:
            for stream in waiting:
                if stream.end == limit:
                    stream.read_on()


class _Stream:
    """A stream with the rows of it that wait for the others."""

    def __init__(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        self._number = number
        self._batches = batches
        self._waiting: pa.RecordBatch | None = None
        self._keys: tuple[Int64Array, Int64Array] | None = None
        self._is_over = False
        self.end: tuple[int, int] | None = None
        """The last ledger that waits; None when the stream is over."""

    def fill(self) -> None:
        """Have some rows wait, if there are more."""
        if self._waiting is None and not self._is_over:
            self.read_on()

    def read_on(self) -> None:
        """Add a batch to what waits."""
        import pyarrow as pa

        batch = next((each for each in self._batches if each.num_rows), None)
        if batch is None:
            self._is_over, self.end = True, None
            return
        if self._waiting is not None:
            (batch,) = pa.Table.from_batches([self._waiting, batch]).combine_chunks().to_batches()
        self._set(batch)

    def _set(self, batch: pa.RecordBatch) -> None:
        self._waiting = batch
        scope, ledger = (batch.column(n).to_numpy() for n in ("scope_id", "ledger_id"))
        self._keys = scope, ledger
        if not self._is_over:
            self.end = ledger_at(scope, ledger, -1)

    def before(self, limit: tuple[int, int] | None) -> pa.RecordBatch | None:
        """Take the rows of ledgers before `limit` (None: all)."""
        import pyarrow as pa

        if self._waiting is None or self._keys is None:
            return None
        rows = self._waiting.num_rows
        at = rows if limit is None else behind(*self._keys, limit, "left")
        if not at:
            return None
        taken = self._waiting.slice(0, at)
        if at == rows:
            self._waiting = self._keys = None
        else:
            self._set(self._waiting.slice(at))
        number = pa.array(np.full(at, self._number, np.int32))
        return taken.append_column(SIDE, number)


def _by_ledger(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    scope, ledger = (batch.column(n).to_numpy().view(np.uint64) for n in ("scope_id", "ledger_id"))
    order = np.lexsort((ledger, scope))  # stable: within a ledger streams stay in order
    return batch.take(pa.array(order))
