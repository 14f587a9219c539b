"""What executors do in a bulk load: sorted rows in, finished pieces out.

Rows come from the JVM, which has sorted them, or from files that are declared sorted, of which a
worker gets tasks and reads them itself.

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
from bkstore.offline.index_building.row_writers import RowWriter, row_writer
from bkstore.offline.load.compared_ranges import compare_range
from bkstore.offline.load.declared_order import task_rows
from bkstore.offline.load.dump_rows import LoadSource
from bkstore.spark.read_tasks import tasks_of

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE = "directory int, wide boolean, path string, rows bigint, bytes bigint, duplicates bigint"
"""A finished piece; `duplicates` of the whole task stand in its first one."""


COMPARED = "rows bigint"
"""How many rows of a range both sides have."""


class CompareRanges:
    """The function of `mapInArrow`: compares an index below `data` with the dump's files, which are
    sorted, range by range. A `CorruptionError` ends it at the first row that differs.
    """

    def __init__(self, source: LoadSource, to: str, data: Path) -> None:
        self.source = source
        self.to = to
        self.data = data

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row of `COMPARED` for each range."""
        import pyarrow as pa

        for part in tasks_of(batches):
            rows = compare_range(self.source, self.to, self.data, part)
            yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


class WritePieces:
    """The function of `mapInArrow`: writes a partition's rows, yields its pieces.

    `rows` takes what the partition has, and yields (directory, rows) in order, one row a key.
    """

    def __init__(self, to: str, folder: str, rows: SortedRows | ReadTasks) -> None:
        self.to = to
        self.folder = folder
        self.rows = rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write, and yield one batch of `MESSAGE`."""
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        name = f"attempt-{task.partitionId()}-{task.taskAttemptId()}"
        writer = self.writer(Path(self.folder) / name)
        for home, rows in self.rows(batches):
            writer.add(home, rows)
        made = writer.finish()
        duplicates = self.rows.taken - sum(piece.rows for piece in made)
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


class SortedRows:
    """Rows that Spark has sorted: (home, scope, ledger, entry, location), ids unsigned.

    Of rows of one key the last one stays, that with the highest location.
    """

    taken = 0
    """Rows so far, all of each key."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, IndexBatch]]:
        """Yield the rows of one directory after the other."""
        self.taken = 0
        for rows in _distinct(self._counted(batches)):
            yield from _by_home(rows)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[IndexBatch]:
        for batch in batches:
            if batch.num_rows:
                columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                yield IndexBatch(*(column.astype(np.int64, copy=False) for column in columns))
                self.taken += batch.num_rows


class ReadTasks:
    """Rows of tasks over files that are sorted, which are read here; `source` says whose.

    What comes is `LoadTask`, in order.
    """

    taken = 0
    """Rows so far."""

    def __init__(self, source: LoadSource) -> None:
        self.source = source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, IndexBatch]]:
        """Yield the rows of one task after the other."""
        self.taken = 0
        for home, task in tasks_of(batches):
            for rows in task_rows(self.source, home, task):
                self.taken += rows.entry_id.size
                yield home, rows


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
