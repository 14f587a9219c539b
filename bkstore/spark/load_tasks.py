"""What executors do in a bulk load: sorted rows in, finished pieces out.

Each attempt of a task writes in a folder named by partition and attempt, and tells what it made
in the row it returns. Spark hands the driver the rows of one attempt of each task; what others
made is never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bkstore.index.api import IndexBatch
from bkstore.offline.load.index_files import RowWriter, row_writer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MESSAGE", "WritePieces"]

MESSAGE = "directory int, wide boolean, path string, rows bigint, bytes bigint, duplicates bigint"
"""A finished piece; `duplicates` of the whole task stand in its first one."""


class WritePieces:
    """The function of `mapInArrow`: writes a partition's rows, yields its pieces.

    Rows are (home, scope, ledger, entry, location), sorted by all five, ids unsigned. Of rows
    of one key the last one stays, that with the highest location.
    """

    def __init__(self, to: str, folder: str) -> None:
        self.to = to
        self.folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write, and yield one batch of `MESSAGE`."""
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        name = f"attempt-{task.partitionId()}-{task.taskAttemptId()}"
        writer = self.writer(Path(self.folder) / name)
        taken = _Counted(batches)
        for rows in _distinct(taken):
            for home, part in _by_home(rows):
                writer.add(home, part)
        made = writer.finish()
        duplicates = taken.rows - sum(piece.rows for piece in made)
        for at, piece in enumerate(made):
            message = {**piece._asdict(), "duplicates": 0 if at else duplicates}
            yield pa.RecordBatch.from_pylist([message], schema=_message_schema())

    def writer(self, folder: Path) -> RowWriter:
        """Return what writes into the attempt's folder."""
        return row_writer(self.to, folder)


def _message_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"int": pa.int32(), "boolean": pa.bool_(), "string": pa.string(), "bigint": pa.int64()}
    fields = (field.split() for field in MESSAGE.split(", "))
    return pa.schema([(name, kinds[kind]) for name, kind in fields])


class _Counted:
    """Arrow batches as index rows, counted."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[IndexBatch]:
        for batch in self._batches:
            if batch.num_rows:
                columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                yield IndexBatch(*(column.astype(np.int64, copy=False) for column in columns))
                self.rows += batch.num_rows


def _by_home(rows: IndexBatch) -> Iterator[tuple[int, IndexBatch]]:
    borders = np.flatnonzero(np.diff(rows.dir_index)) + 1
    for lo, hi in zip([0, *borders], [*borders, rows.dir_index.size]):
        yield int(rows.dir_index[lo]), IndexBatch(*(column[lo:hi] for column in rows))


def _distinct(parts: Iterable[IndexBatch]) -> Iterator[IndexBatch]:
    """Yield the last row of each key; the last of a batch waits for the next batch."""
    waiting: IndexBatch | None = None
    for rows in parts:
        if waiting is not None:
            rows = IndexBatch(*(np.concatenate(pair) for pair in zip(waiting, rows)))
        _, scope, ledger, entry, _ = rows
        other = (entry[1:] != entry[:-1]) | (ledger[1:] != ledger[:-1]) | (scope[1:] != scope[:-1])
        last = np.flatnonzero(other)
        if last.size:
            yield IndexBatch(*(column[last] for column in rows))
        waiting = IndexBatch(*(column[-1:] for column in rows))
    if waiting is not None:
        yield waiting
