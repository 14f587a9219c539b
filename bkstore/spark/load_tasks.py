"""The executors' part of a bulk load: from sorted rows to finished files of an index, its pieces.

The JVM has sorted the rows, or a worker reads sorted files itself. Each attempt of a task writes to
a folder named by partition and attempt, and returns rows that list its pieces. Spark gives the
driver those of one attempt of each task; the pieces of others are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bkstore.index.api import IndexBatch
from bkstore.offline.index_building.row_writers import RowWriter, open_row_writer
from bkstore.offline.load.compared_ranges import compare_range
from bkstore.offline.load.declared_order import read_task_rows
from bkstore.offline.load.dump_rows import LoadSource
from bkstore.spark.read_tasks import unpickle_tasks

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_DDL = (
    "directory int, has_scope boolean, path string, rows bigint, bytes bigint, duplicates bigint"
)
"""A finished piece; the first piece of a task has the `duplicates` of the whole task."""

COMPARED_DDL = "rows bigint"
"""The number of rows of a range, equal in the dump and the index."""


class CompareRanges:
    """The function of `mapInArrow`: compares the index below `data` with the dump's sorted files,
    range by range. Raises `CorruptionError` at the first row that differs."""

    def __init__(self, source: LoadSource, layout: str, data: Path) -> None:
        self.source = source
        self.layout = layout
        self.data = data

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row of `COMPARED_DDL` for each range."""
        import pyarrow as pa

        for ledger_range in unpickle_tasks(batches):
            rows = compare_range(self.source, self.layout, self.data, ledger_range)
            yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


class WritePieces:
    """The function of `mapInArrow`: writes a partition's rows, yields its pieces.
    `rows` takes its batches, and yields (directory, rows) in order, one row per key."""

    def __init__(self, layout: str, folder: str, rows: ShuffledRows | SortedFileRows) -> None:
        self.layout = layout
        self.folder = folder
        self.read_rows = rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, then yield a batch of `PIECE_DDL` for each piece."""
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        attempt_name = f"attempt-{task.partitionId()}-{task.taskAttemptId()}"
        with self.open_writer(Path(self.folder) / attempt_name) as writer:
            for directory, rows in self.read_rows(batches):
                writer.add(directory, rows)
            pieces = writer.finish()
        duplicates = self.read_rows.rows_read - sum(piece.rows for piece in pieces)
        for number, piece in enumerate(pieces):
            # The duplicates of all pieces are those of the task: its first message has them.
            message = {**piece._asdict(), "duplicates": 0 if number else duplicates}
            yield pa.RecordBatch.from_pylist([message], schema=_piece_schema())

    def open_writer(self, folder: Path) -> RowWriter:
        """Return the writer of pieces in the attempt's folder."""
        return open_row_writer(self.layout, folder)


def _piece_schema() -> pa.Schema:
    """Return the Arrow schema of `PIECE_DDL`."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "boolean": pa.bool_(), "string": pa.string(), "bigint": pa.int64()}
    fields = (field.split() for field in PIECE_DDL.split(", "))
    return pa.schema([(name, kinds[kind]) for name, kind in fields])


class ShuffledRows:
    """Rows that Spark has sorted: (home, scope, ledger, entry, location), ids unsigned. Of the rows
    of a key only the last is kept, which has the highest location."""

    rows_read = 0
    """Number of rows read so far, duplicates included."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, IndexBatch]]:
        """Yield (directory, rows), one directory after the other."""
        self.rows_read = 0
        for distinct_rows in _last_of_each_key(self._read_batches(batches)):
            yield from _split_by_directory(distinct_rows)

    def _read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[IndexBatch]:
        for batch in batches:
            if batch.num_rows:
                columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                yield IndexBatch(*(column.astype(np.int64, copy=False) for column in columns))
                self.rows_read += batch.num_rows


class SortedFileRows:
    """Rows of `LoadTask` tasks over sorted files, in order; `source` names the bookie."""

    rows_read = 0
    """Number of rows read so far."""

    def __init__(self, source: LoadSource) -> None:
        self.source = source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, IndexBatch]]:
        """Yield (directory, rows), one task after the other."""
        self.rows_read = 0
        for directory, task in unpickle_tasks(batches):
            for rows in read_task_rows(self.source, directory, task):
                self.rows_read += rows.entry_id.size
                yield directory, rows


def _split_by_directory(rows: IndexBatch) -> Iterator[tuple[int, IndexBatch]]:
    inner_starts = np.flatnonzero(np.diff(rows.dir_index)) + 1
    for start, stop in zip([0, *inner_starts], [*inner_starts, rows.dir_index.size]):
        yield int(rows.dir_index[start]), IndexBatch(*(column[start:stop] for column in rows))


def _last_of_each_key(batches: Iterable[IndexBatch]) -> Iterator[IndexBatch]:
    """Yield the last row of each key; the last row of a batch waits for the next batch."""
    waiting: IndexBatch | None = None
    for rows in batches:
        if waiting is not None:
            rows = IndexBatch(*(np.concatenate(pair) for pair in zip(waiting, rows)))
        # A row is the last of its key if any id differs in the next row.
        _, scope_id, ledger_id, entry_id, _ = rows
        is_last = entry_id[1:] != entry_id[:-1]
        is_last |= ledger_id[1:] != ledger_id[:-1]
        is_last |= scope_id[1:] != scope_id[:-1]
        last_rows = np.flatnonzero(is_last)
        if last_rows.size:
            yield IndexBatch(*(column[last_rows] for column in rows))
        waiting = IndexBatch(*(column[-1:] for column in rows))
    if waiting is not None:
        yield waiting
