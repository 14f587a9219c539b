"""Tasks as rows of Spark: executors' Python workers read the files, and give what they make.

A row is small: paths, row groups, ranges of ledgers, as text. Each is a partition of its own, in
the plan as one local table however many there are. Spark is not told where a file lies, and asks
for no locality: on storage that all executors share there is none to ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from bkstore.offline.reading.read_tasks import Task, packed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Answers", "answered", "task_rows"]

_LEAST, _MOST = 1 << 20, 1 << 25
"""Rows of a task: fewer are not worth one, more are not done soon enough to be done again."""

_TASKS_A_CORE = 3
"""So that cores that are done early have something left to do."""

Answers = Callable[[Task], Iterator["RecordBatch"]]
"""What a worker makes of a task; it can be pickled."""


def task_rows(spark: SparkSession, rows: int) -> int:
    """Return how many rows a task should have, of `rows` in all."""
    share = rows // (_TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    return min(max(share, _LEAST), _MOST)


def answered(
    spark: SparkSession, tasks: Iterable[Task], rows: int, answers: Answers, schema: str
) -> DataFrame:
    """Return what `answers` makes of the tasks, small ones of which share a partition.

    `spark` is a session of one's own: how local tables are cut is set in it.
    """
    import pyarrow as pa

    texts = [json.dumps([task.to_json() for task in each]) for each in packed(tasks, rows)]
    # One partition a row: Spark cuts a local table evenly into so many.
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(max(len(texts), 1)))
    table = pa.table({"tasks": pa.array(texts, pa.string())})
    return spark.createDataFrame(table).mapInArrow(_Worker(answers), schema)


class _Worker:
    """The function of `mapInArrow`: does each task of the rows that it is given."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the tasks give."""
        for batch in batches:
            for text in batch.column(0).to_pylist():
                for task in json.loads(text):
                    yield from self._answers(Task.from_json(task))
