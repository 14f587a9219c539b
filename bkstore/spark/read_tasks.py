"""Tasks as Spark rows: executors' Python workers read the files and return the result rows.

A row is a pickled list of tasks: paths, shares of files, ranges of ledgers, and other inputs of a
task. The plan has all rows as one local table, each in a partition of its own, so that an executor
gets only its own tasks. Tasks have no locality: the files are on storage that all executors share.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from bkstore.offline.reading.open_dump import Dump, check_file
from bkstore.offline.reading.read_tasks import pack_tasks
from bkstore.spark.errors import convert_spark_errors
from bkstore.tables import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

_MIN_TASK_ROWS, _MAX_TASK_ROWS = 1 << 20, 1 << 25
"""Bounds for the rows of a task: fewer do not pay for it, more take too long to retry."""

_TASKS_PER_CORE = 3
"""More than one, so that cores that finish early have another task."""

_MAX_DRIVER_FILES = 64
"""Up to so many files, footers are read on the driver instead of in a Spark job."""

_SQL_TYPES = {
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "string": "string",
    "bool": "boolean",
    "binary": "binary",
    "rows": "array<array<bigint>>",
}

_PARTITIONS_SETTING = "spark.sql.leafNodeDefaultParallelism"


class _SizedTask(Protocol):
    """A task for a worker; it can be pickled."""

    @property
    def rows(self) -> int:
        """The approximate number of rows of the task."""


TaskFunction = Callable[[Any], Iterator["RecordBatch"]]
"""A function from a task to its result rows, run by a worker; it can be pickled."""


def rows_per_task(spark: SparkSession, rows: int, max_rows: int = _MAX_TASK_ROWS) -> int:
    """Return how many of `rows` rows a task should have, at most `max_rows`."""
    share = -(-rows // (_TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    return min(max(share, _MIN_TASK_ROWS), max_rows)


def task_table(spark: SparkSession, tasks: Iterable[_SizedTask], rows: int) -> DataFrame:
    """Return tasks as a DataFrame with a partition per task; small tasks share one, in order.
    Changes a setting of `spark`, so pass a separate session. Costs some 30 us per row."""
    import pyarrow as pa

    pickled_lists = _pickle_lists(tasks, rows)
    # Spark keeps a table of up to 48 MiB in the plan (`arrow.localRelationThreshold`), and cuts
    # it evenly into this many partitions; in a larger table each batch is a partition.
    partition_count = max(int(spark.conf.get(_PARTITIONS_SETTING, "1") or 1), len(pickled_lists))
    spark.conf.set(_PARTITIONS_SETTING, str(partition_count))
    schema = pa.schema([("tasks", pa.binary())])
    arrays = (pa.array([pickled], pa.binary()) for pickled in pickled_lists)
    batches = [pa.record_batch([array], schema) for array in arrays]
    return spark.createDataFrame(pa.Table.from_batches(batches, schema))


def _pickle_lists(tasks: Iterable[_SizedTask], rows: int) -> list[bytes]:
    return list(map(pickle.dumps, pack_tasks(tasks, rows, lambda task: task.rows)))


def unpickle_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the tasks of a partition of `task_table`."""
    for batch in batches:
        for pickled in batch.column(0).to_pylist():
            yield from _unpickle(pickled)


def _unpickle(pickled: bytes) -> list[Any]:
    return pickle.loads(pickled)  # type: ignore[no-any-return]  # noqa: S301 - the driver's own


def run_tasks_lazily(
    spark: SparkSession, tasks: Iterable[_SizedTask], rows: int, run_task: TaskFunction, schema: str
) -> DataFrame:
    """Return the result rows of the tasks, which have the DDL `schema`; nothing runs yet."""
    return task_table(spark, tasks, rows).mapInArrow(_TaskRunner(run_task), schema)


def collect_results(
    spark: SparkSession, tasks: Iterable[_SizedTask], rows: int, run_task: TaskFunction
) -> Iterator[RecordBatch]:
    """Run the tasks and yield their result batches, in any order.

    Batches are sent as Arrow bytes, which the JVM does not decode: in Spark rows each value of a
    list would be converted three times. All of them are on the driver at once.
    """
    pickled_lists = _pickle_lists(tasks, rows)
    if not pickled_lists:
        return
    lists = spark.sparkContext.parallelize(pickled_lists, len(pickled_lists))
    for stream in lists.mapPartitions(_SerializingTaskRunner(run_task)).collect():
        yield from _read_batches(stream)


def _read_batches(data: bytes) -> Iterator[RecordBatch]:
    import pyarrow as pa

    with pa.ipc.open_stream(data) as stream:
        yield from stream


def check_files(spark: SparkSession, dump: Dump, tables: Iterable[str]) -> None:
    """Check the footers of tables' files as `Dump.check` does, on executors if they are many."""
    for table in tables:
        files = dump.files[table]
        if len(files) <= _MAX_DRIVER_FILES:
            dump.check(table)
            continue
        cores = spark.sparkContext.defaultParallelism
        partition_count = min(-(-len(files) // _MAX_DRIVER_FILES), _TASKS_PER_CORE * cores)
        with convert_spark_errors(f"examining the files of {table}"):
            spark.sparkContext.parallelize(files, partition_count).foreach(check_file)


def spark_ddl(schema: Schema) -> str:
    """Return a schema as Spark DDL."""
    return ", ".join(f"`{column.name}` {_SQL_TYPES[column.kind]}" for column in schema.columns)


class _TaskRunner:
    """The function of `mapInArrow`: yields the result rows of each task in its batches."""

    def __init__(self, run_task: TaskFunction) -> None:
        self._run_task = run_task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in unpickle_tasks(batches):
            yield from self._run_task(task)


class _SerializingTaskRunner:
    """The function of `mapPartitions`: yields each result batch of the tasks as an Arrow stream."""

    def __init__(self, run_task: TaskFunction) -> None:
        self._run_task = run_task

    def __call__(self, pickled_lists: Iterable[bytes]) -> Iterator[bytes]:
        """Run tasks, and yield their rows as Arrow streams in bytes."""
        import pyarrow as pa

        tasks = (task for pickled_list in pickled_lists for task in _unpickle(pickled_list))
        for task in tasks:
            for batch in self._run_task(task):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                yield sink.getvalue().to_pybytes()
