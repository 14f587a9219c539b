"""Which reader reads a dump's Parquet files in Spark: the JVM's if it can, else Python workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.file_locations import is_remote
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.read_tasks import ReadTask, plan_unsorted_tasks
from bkstore.offline.reading.row_stream import read_rows
from bkstore.spark.read_tasks import rows_per_task, run_tasks_lazily, spark_ddl
from bkstore.tables import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PATTERN_CHARACTERS = re.compile(r"[][*?{}\\]")
"""Characters that are special in Hadoop's path patterns."""


def files_frame(
    spark: SparkSession, dump: Dump, schema: Schema, files: Sequence[DumpFile]
) -> DataFrame:
    """Return files of a table as a DataFrame, read by Java if it can, else by Python workers."""
    if dump.is_remote or needs_workers(files):
        rows = rows_per_task(spark, sum(file.rows for file in files))
        return read_by_workers(spark, files, rows, schema)
    return spark.read.schema(spark_ddl(schema)).parquet(*(file.path for file in files))


def needs_workers(files: Iterable[DumpFile]) -> bool:
    """Return whether Spark cannot read the files, so that `read_by_workers` has to: one is on a
    file system that Java does not support, or Spark would read its path as a pattern."""
    return any(is_remote(file.path) or _PATTERN_CHARACTERS.search(file.path) for file in files)


def read_by_workers(
    spark: SparkSession, files: Sequence[DumpFile], rows: int, schema: Schema
) -> DataFrame:
    """Return all rows of files, read by Python workers."""
    tasks = plan_unsorted_tasks(files, rows)
    return run_tasks_lazily(spark, tasks, rows, _StoredRows(tuple(schema.names)), spark_ddl(schema))


class _StoredRows:
    """Yields the given columns of a task's rows unchanged."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def __call__(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        for read in (read for reads in task.reads_per_dump for read in reads):
            yield from read_rows(read, self._columns)
