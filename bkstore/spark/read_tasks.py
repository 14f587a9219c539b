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

__all__ = ["Answers", "answered", "task_rows", "task_table", "tasks_of"]

_LEAST, _MOST = 1 << 20, 1 << 25
"""Rows of a task: fewer are not worth one, more are not done soon enough to be done again."""

_TASKS_A_CORE = 3
"""So that cores that are done early have something left to do."""

_CUT = "spark.sql.leafNodeDefaultParallelism"

Tagged = tuple[int, Task]
"""A task with a number of the caller's."""

Answers = Callable[[Task], Iterator["RecordBatch"]]
"""What a worker makes of a task; it can be pickled."""


def task_rows(spark: SparkSession, rows: int, most: int = _MOST) -> int:
    """Return how many rows a task should have, of `rows` in all, `most` if that is said."""
    share = -(-rows // (_TASKS_A_CORE * spark.sparkContext.defaultParallelism))
    return min(max(share, _LEAST), most)


def task_table(spark: SparkSession, tasks: Iterable[Tagged], rows: int) -> DataFrame:
    """Return tasks as a DataFrame of texts, a partition each; small ones share one, in order.

    `spark` is a session of one's own: how local tables are cut is set in it.
    """
    import pyarrow as pa

    texts = [
        json.dumps([(number, task.to_json()) for number, task in each])
        for each in packed(tasks, rows, lambda tagged: tagged[1].rows)
    ]
    # One partition a row: Spark cuts a local table evenly into as many as it is told here.
    most = max(int(spark.conf.get(_CUT, "1") or 1), len(texts))
    spark.conf.set(_CUT, str(most))
    return spark.createDataFrame(pa.table({"tasks": pa.array(texts, pa.string())}))


def tasks_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Tagged]:
    """Yield the tasks of a partition of `task_table`, each with its number."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            for number, task in json.loads(text):
                yield number, Task.from_json(task)


def answered(
    spark: SparkSession, tasks: Iterable[Task], rows: int, answers: Answers, schema: str
) -> DataFrame:
    """Return what `answers` makes of the tasks; nothing runs yet."""
    table = task_table(spark, ((0, task) for task in tasks), rows)
    return table.mapInArrow(_Worker(answers), schema)


class _Worker:
    """The function of `mapInArrow`: answers each task that it is given."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the tasks give."""
        for _, task in tasks_of(batches):
            yield from self._answers(task)
