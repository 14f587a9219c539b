"""One row an entry, where rows may come more than once: the place that was put last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bkstore.offline.analyses.kernels.index_columns import codes, int64

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("scope_id", "ledger_id", "entry_id")


def last_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows that come by bookie, ledger, entry and place: of each entry the last.

    Loads keep the same one of several (`OrderedRows`). Memory: a batch; the last row of each
    waits for the next.
    """
    import pyarrow as pa

    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None:
            (batch,) = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()
        held = batch.slice(batch.num_rows - 1)
        ends = _ends_of_entries(batch)
        before = batch.slice(0, batch.num_rows - 1)
        yield before if ends.all() else before.filter(pa.array(ends))
    if held is not None:
        yield held


def _ends_of_entries(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return for each row but the last whether the next one is another entry's."""
    columns = [int64(batch, name) for name in _KEYS]
    if "bookie" in batch.schema.names:
        columns.append(codes(batch, "bookie")[0])
    ends = np.zeros(batch.num_rows - 1, np.bool_)
    for column in columns:
        ends |= column[1:] != column[:-1]
    return ends
