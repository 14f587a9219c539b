"""Tasks as rows of Spark: executors' Python workers read the files, and give what they make.

A row is a pickled list of tasks: paths, shares of files, ranges of ledgers, and what a task has to
know beside them. Each is a partition of its own, in the plan as one local table however many there
are, so that an executor gets only what is of its tasks. Spark is not told where a file lies, and
asks for no locality: on storage that all executors share there is none to ask for.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.open_dump import Dump, check_file
from bkstore.offline.reading.places import is_remote
from bkstore.offline.reading.read_tasks import Task, loose_tasks, packed
from bkstore.offline.reading.row_stream import read_rows
from bkstore.spark.errors import spark_errors
from bkstore.tables import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

_LEAST, _MOST = 1 << 20, 1 << 25
"""Rows of a task: fewer are not worth one, more are not done soon enough to be done again."""

_TASKS_A_CORE = 3
"""So that cores that are done early have something left to do."""

_FEW_FILES = 64
"""Files whose footers are not worth a job of Spark's."""

_KINDS = {
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "string": "string",
    "bool": "boolean",
    "binary": "binary",
    "rows": "array<array<bigint>>",
}

_PATTERN = re.compile(r"[][*?{}\\]")
"""Characters of Hadoop's patterns."""

_CUT = "spark.sql.leafNodeDefaultParallelism"


class _SomeTask(Protocol):
    """What a worker is given; it can be pickled."""

    @property
    def rows(self) -> int:
        """About how many rows it is."""


Answers = Callable[[Any], Iterator["RecordBatch"]]
"""What a worker makes of a task; it can be pickled."""


def task_rows(spark: SparkSession, rows: int, most: int = _MOST) -> int:
    """Return how many rows a task should have, of `rows` in all, `most` if that is said."""
    share = -(-rows // (_TASKS_A_CORE * spark.sparkContext.defaultParallelism))
    return min(max(share, _LEAST), most)


def task_table(spark: SparkSession, tasks: Iterable[_SomeTask], rows: int) -> DataFrame:
    """Return tasks as a DataFrame, a partition each; small ones share one, in order.

    `spark` is a session of one's own: how local tables are cut is set in it. Costs some 30 us
    a row.
    """
    import pyarrow as pa

    lists = _lists(tasks, rows)
    # Spark keeps a table of up to 48 MiB in the plan (`arrow.localRelationThreshold`), and cuts
    # it evenly into as many partitions as it is told here; of a larger one each batch is one.
    most = max(int(spark.conf.get(_CUT, "1") or 1), len(lists))
    spark.conf.set(_CUT, str(most))
    schema = pa.schema([("tasks", pa.binary())])
    batches = [pa.record_batch([pa.array([each], pa.binary())], schema) for each in lists]
    return spark.createDataFrame(pa.Table.from_batches(batches, schema))


def _lists(tasks: Iterable[_SomeTask], rows: int) -> list[bytes]:
    """Return lists of tasks, pickled; small ones share one, in order."""
    return [pickle.dumps(each) for each in packed(tasks, rows, lambda task: task.rows)]


def tasks_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the tasks of a partition of `task_table`."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from _unpickled(data)


def _unpickled(data: bytes) -> list[Any]:
    return pickle.loads(data)  # type: ignore[no-any-return]  # noqa: S301 - the driver's own


def answered(
    spark: SparkSession, tasks: Iterable[_SomeTask], rows: int, answers: Answers, schema: str
) -> DataFrame:
    """Return what `answers` makes of the tasks; nothing runs yet."""
    return task_table(spark, tasks, rows).mapInArrow(_Worker(answers), schema)


def collected(
    spark: SparkSession, tasks: Iterable[_SomeTask], rows: int, answers: Answers
) -> Iterator[RecordBatch]:
    """Run the tasks, and yield the batches that `answers` makes of them, in any order.

    They come as bytes of Arrow's, which the JVM hands on as they are: as rows of Spark each value
    of a list would be converted three times. All of them are on the driver at once.
    """
    lists = _lists(tasks, rows)
    if not lists:
        return
    parts = spark.sparkContext.parallelize(lists, len(lists)).mapPartitions(_Pieces(answers))
    for piece in parts.collect():
        yield from _batches_of(piece)


def _batches_of(piece: bytes) -> Iterator[RecordBatch]:
    import pyarrow as pa

    with pa.ipc.open_stream(piece) as stream:
        yield from stream


def needs_workers(files: Iterable[DumpFile]) -> bool:
    """Return whether files cannot be read by Spark itself, but by `stored`.

    They lie on a file system that Java does not know, or Spark would take a path for a pattern.
    """
    return any(is_remote(file.path) or _PATTERN.search(file.path) for file in files)


def stored(spark: SparkSession, files: Sequence[DumpFile], rows: int, schema: Schema) -> DataFrame:
    """Return all rows of files, read by Python workers."""
    tasks = loose_tasks(files, rows)
    return answered(spark, tasks, rows, _StoredRows(tuple(schema.names)), ddl(schema))


class _StoredRows:
    """Answers a task with these columns of its rows as they are."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def __call__(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for read in (read for side in task.sides for read in side):
            yield from read_rows(read, self._columns)


def check_files(spark: SparkSession, dump: Dump, tables: Iterable[str]) -> None:
    """Look at the footers of tables' files as `Dump.check` does; many of them on executors."""
    for table in tables:
        files = dump.files[table]
        if len(files) <= _FEW_FILES:
            dump.check(table)
            continue
        cores = spark.sparkContext.defaultParallelism
        parts = min(-(-len(files) // _FEW_FILES), _TASKS_A_CORE * cores)
        with spark_errors(f"looking at the files of {table}"):
            spark.sparkContext.parallelize(files, parts).foreach(check_file)


def ddl(schema: Schema) -> str:
    """Return a schema in Spark's words."""
    return ", ".join(f"`{column.name}` {_KINDS[column.kind]}" for column in schema.columns)


class _Worker:
    """The function of `mapInArrow`: answers each task that it is given."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the tasks give."""
        for task in tasks_of(batches):
            yield from self._answers(task)


class _Pieces:
    """The function of `mapPartitions`: answers each task, a batch as bytes."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, lists: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what the tasks give, as streams of Arrow's."""
        import pyarrow as pa

        for task in (task for data in lists for task in _unpickled(data)):
            for batch in self._answers(task):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                yield sink.getvalue().to_pybytes()
