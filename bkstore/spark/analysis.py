"""Spark as an engine of `bkstore.offline.analyses`: the same SQL and kernels, on many machines.

SQL texts run unchanged. A kernel runs in executors' Python workers (`mapInArrow`), which open
sorted files themselves, following a table of tasks (`read_tasks`): no row passes through the JVM
and nothing is shuffled. Rows of other files are shuffled by ledger, entries condensed to groups
before. Rows are never exploded, and only the result is collected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.arguments import integer
from bkstore.errors import MissingDependency
from bkstore.offline.analyses import engine_steps
from bkstore.offline.analyses.catalog import Analysis, Inputs, KernelJob, Options
from bkstore.offline.analyses.kernels.holes import Holes
from bkstore.offline.analyses.sorted_files import SortedFileScan
from bkstore.offline.analyses.sql import READ_GROUPS
from bkstore.offline.reading.disjoint_files import split_repeating
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.open_dump import Dump, open_dump
from bkstore.offline.reading.read_tasks import plan_unsorted_tasks
from bkstore.spark.errors import convert_spark_errors
from bkstore.spark.parquet_readers import files_frame
from bkstore.spark.read_tasks import (
    TaskFunction,
    check_files,
    collect_results,
    rows_per_task,
    run_tasks_lazily,
    spark_ddl,
)
from bkstore.tables import ENTRIES, GROUPS, HOLES, Schema
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SQL_FUNCTIONS = (
    "create or replace temporary function bk_div(a bigint, b bigint) returns bigint return a div b",
    "create or replace temporary function bk_unsigned(a bigint) returns bigint"
    " return a ^ (-9223372036854775807 - 1)",
    "create or replace temporary function bk_qualified(a bigint, b bigint) returns string"
    " return lower(concat(lpad(hex(a), 16, '0'), lpad(hex(b), 16, '0')))",
)
"""The functions that the texts in `bkstore.offline.analyses.sql` call, defined for Spark."""

_ROW_COST = {"entries": 1, "groups": 16}
"""Cost of a row of each table to its kernel, as a number of entry rows: it sets the task size."""

_BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LISTING_SETTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS_PER_CORE = 2
_SHUFFLE_SETTING = "spark.sql.shuffle.partitions"

_TABLE_PATTERN = re.compile(r"\b(from|join) (entries|groups|ledgers)\b")

_TOTALS_SQL = """
with counted as (
  select bookie, count(*) as entry_rows,
    count(distinct cast(dir_index as bigint) * 4294967296 + log_id) as entry_logs
  from entries group by bookie),
condensed as (
  select bookie, count(*) as sequence_groups,
    sum(case when sequence_period = 0 then sequence_size
      else (bk_div(last_sequence_start - first_sequence_start, sequence_period) + 1)
        * sequence_size end) as grouped_entries
  from groups group by bookie),
known as (
  select bookie, count(*) as ledgers, sum(case when fenced then 1 else 0 end) as fenced_ledgers,
    sum(case when scope_id <> 0 then 1 else 0 end) as scoped_ledgers
  from ledgers group by bookie)
select k.bookie, ledgers, fenced_ledgers, scoped_ledgers, coalesce(entry_rows, 0) as entries,
  coalesce(grouped_entries, 0) as grouped_entries,
  coalesce(sequence_groups, 0) as sequence_groups, coalesce(entry_logs, 0) as entry_logs
from known k left join counted r on k.bookie = r.bookie
left join condensed c on k.bookie = c.bookie
order by k.bookie
"""


class _Plan(NamedTuple):
    """Tasks of about `rows` rows over sorted files, and files that have to be sorted first."""

    job: KernelJob
    tasks: list[Any]
    unsorted_files: list[DumpFile]
    rows: int


@dataclass(frozen=True)
class _SessionViews:
    """The views of some inputs, in a session of their own. `view_names` has the names of existing
    views: Spark's own lookup would also find the user's catalog tables."""

    inputs: Inputs
    spark: SparkSession
    view_names: set[str] = field(default_factory=set)

    def has_inputs(self, inputs: Inputs) -> bool:
        """Return whether `inputs` has the same dumps and metadata, and chooses the same owners."""
        own, same_dump = self.inputs, inputs.dump is self.inputs.dump
        same_metadata = inputs.metadata is own.metadata and inputs.pulsar is own.pulsar
        same_owners = inputs.options.owners == own.options.owners
        return same_dump and same_metadata and same_owners and inputs.other is own.other

    def create_views_for(self, sql_text: str) -> None:
        """Create the views that a SQL text names, of the dumps' tables and of the metadata."""
        own_tables, other_tables = engine_steps.tables_of_query(sql_text)
        views = [(table, self.inputs.dump, table) for table in own_tables]
        if self.inputs.other is not None:
            views += [(f"other_{table}", self.inputs.other, table) for table in other_tables]
        for view_name, dump, table in views:
            if view_name not in self.view_names:
                _create_view(self.spark, view_name, dump, DUMP_TABLES[table])
                self.view_names.add(view_name)
        for view_name, rows in engine_steps.tables_of_inputs(self.inputs, sql_text).items():
            if view_name not in self.view_names:
                _create_rows_view(self.spark, view_name, rows)
                self.view_names.add(view_name)


class _TopRows:
    """Yields a task's top rows: the overall top rows are among those of all tasks. Picklable."""

    def __init__(self, task_function: TaskFunction, analysis: Analysis, options: Options) -> None:
        self._task_function, self._analysis, self._options = task_function, analysis, options

    def __call__(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield one batch at most."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._task_function(task), self._analysis.schema.to_arrow())
        yield from engine_steps.top_rows(table, self._analysis, self._options).to_batches()


class SparkEngine:
    """Runs analyses in a Spark session, on dumps that the driver and all executors can read.

    `batch` is the rows that a Python worker gets at a time. The session's own views and functions
    are not touched: the work is done in a new one. Raises `MissingDependency` without pandas.
    """

    def __init__(self, spark: SparkSession, batch: int = 1 << 16) -> None:
        if find_spec("pandas") is None:
            raise MissingDependency.of("pandas", "spark", "analyses with Spark")
        self._batch = integer(1, 2**31 - 1)("batch", batch)
        self._spark = spark
        self._views: _SessionViews | None = None

    def run(self, analysis: Analysis, inputs: Inputs) -> Any:
        """Return the analysis's pyarrow table, with the declared schema and order.

        Raises `InvalidArgument` for a missing input, a one-line `BkstoreError` for Spark's errors.
        """
        engine_steps.check_inputs(analysis, inputs)
        inputs = engine_steps.limit_to_owners(analysis, inputs)
        sql_or_job, options = analysis.sql_or_job(inputs), inputs.options
        with convert_spark_errors(f"the analysis {analysis.name}"):
            plan = (
                None
                if isinstance(sql_or_job, str)
                else self._plan_tasks(analysis, sql_or_job, inputs)
            )
            is_filtered = engine_steps.filters_rows(analysis, options)
            # If tasks alone make all rows, their results need no DataFrame.
            if plan is not None and not plan.unsorted_files and not is_filtered:
                table = self._collect_table(analysis, plan, options)
            else:
                table = self._make_frame(analysis, sql_or_job, plan, inputs).toArrow()
        return engine_steps.finish_table(table, analysis, inputs)

    def frame(self, analysis: Analysis, inputs: Inputs) -> DataFrame:
        """Return the analysis as a DataFrame of the declared columns.

        For results that do not fit in the driver: write them from the executors. Rows are
        unordered; with `Options.top` they are the top rows, largest first. Reads no rows yet, only
        what planning needs: footers of the tables that SQL names (in a job on executors if there
        are more than 64 files, which Spark also lists), and of `ledgers` if ledgers are judged or
        compared. Raises as `run` does; later errors are Spark's own.
        """
        engine_steps.check_inputs(analysis, inputs)
        inputs = engine_steps.limit_to_owners(analysis, inputs)
        sql_or_job = analysis.sql_or_job(inputs)
        with convert_spark_errors(f"the analysis {analysis.name}"):
            plan = (
                None
                if isinstance(sql_or_job, str)
                else self._plan_tasks(analysis, sql_or_job, inputs)
            )
            return self._make_frame(analysis, sql_or_job, plan, inputs)

    def _plan_tasks(self, analysis: Analysis, job: KernelJob, inputs: Inputs) -> _Plan | None:
        """Return the plan to read sorted files by tasks, or None if all rows must be shuffled."""
        table = job.sorted_reader.table
        # Tasks are sized in rows of `entries`; a row of this table counts as `row_cost` of them.
        row_cost = _ROW_COST[table]
        total_cost = row_cost * sum(file.rows for file in inputs.dump.files[table])
        task_rows = rows_per_task(self._spark, total_cost) // row_cost
        other_dump = inputs.other if analysis.needs_other else None
        planned = job.sorted_reader.plan(inputs.dump, other_dump, inputs.metadata, task_rows)
        return None if planned is None else _Plan(job, *planned, task_rows)

    def _collect_table(self, analysis: Analysis, plan: _Plan, options: Options) -> pa.Table:
        import pyarrow as pa

        task_function = _task_function_of(analysis, plan, options)
        batches = collect_results(self._spark, plan.tasks, plan.rows, task_function)
        return pa.Table.from_batches(batches, analysis.schema.to_arrow())

    def _make_frame(
        self, analysis: Analysis, sql_or_job: KernelJob | str, plan: _Plan | None, inputs: Inputs
    ) -> DataFrame:
        """Return all rows, or the top rows in order if `Options.top` is set."""
        frame, options = self._select_rows(analysis, sql_or_job, plan, inputs), inputs.options
        if engine_steps.filters_rows(analysis, options):
            chosen = self._session_for(inputs, "chosen").table("chosen")
            frame = frame.join(chosen, ["scope_id", "ledger_id"], "leftsemi")
            frame = frame.select(*analysis.schema.names)
        if options.top is None:
            return frame
        return _top_rows(frame, analysis.rank_column(options), analysis, options.top)

    def _select_rows(
        self, analysis: Analysis, sql_or_job: KernelJob | str, plan: _Plan | None, inputs: Inputs
    ) -> DataFrame:
        """Return all rows, by SQL, a kernel over shuffled rows (no `plan`), or tasks over sorted
        files; with `Options.top`, tasks yield only their top rows."""
        spark = self._session_for(inputs, sql_or_job if isinstance(sql_or_job, str) else "")
        if isinstance(sql_or_job, str):
            return spark.sql(sql_or_job).select(*analysis.schema.names)
        schema = spark_ddl(analysis.schema)
        if plan is None:
            return self._sql_rows(sql_or_job, inputs, schema)
        task_function = _task_function_of(analysis, plan, inputs.options)
        frame = run_tasks_lazily(spark, plan.tasks, plan.rows, task_function, schema)
        if not plan.unsorted_files:
            return frame
        shuffled_rows = _run_shuffled(self._unsorted_rows(spark, plan, inputs), sql_or_job, schema)
        return frame.unionAll(shuffled_rows) if plan.tasks else shuffled_rows

    def _unsorted_rows(self, spark: SparkSession, plan: _Plan, inputs: Inputs) -> DataFrame:
        """Return the rows of unsorted files; if the job has a condenser, tasks condense the entries
        of each file to sequence groups first."""
        job = plan.job
        if job.condenser is not None:
            tasks = plan_unsorted_tasks(plan.unsorted_files, plan.rows)
            run_task, schema = job.condenser.run_task, spark_ddl(GROUPS)
            return run_tasks_lazily(spark, tasks, plan.rows, run_task, schema)
        assert isinstance(job.sorted_reader, SortedFileScan)
        check_files(spark, inputs.dump, [job.sorted_reader.table])
        rows = files_frame(spark, inputs.dump, ENTRIES, plan.unsorted_files)
        return rows.select("bookie", *job.sorted_reader.columns)

    def _sql_rows(self, job: KernelJob, inputs: Inputs, schema: str) -> DataFrame:
        """Return the kernel's rows over the shuffled result of its SQL text."""
        sql_text = job.input.sql_text or ""
        return _run_shuffled(self._session_for(inputs, sql_text).sql(sql_text), job, schema)

    def _session_for(self, inputs: Inputs, sql_text: str) -> SparkSession:
        """Return a session of these inputs with views of the tables that a SQL text reads. The
        session of the last inputs is kept and reused."""
        if self._views is None or not self._views.has_inputs(inputs):
            self._views = _SessionViews(inputs, self._new_session(inputs))
        views = self._views
        views.create_views_for(sql_text)
        # A SQL text may also read other analyses, by their names.
        for needed in engine_steps.analyses_of_query(sql_text):
            if needed.name not in views.view_names:
                frame = self.frame(needed, engine_steps.without_top(inputs))
                frame.createOrReplaceTempView(needed.name)
                views.view_names.add(needed.name)
        return views.spark

    def _new_session(self, inputs: Inputs) -> SparkSession:
        """Return a new session with the SQL functions and the bookies of the inputs."""
        spark = self._spark.newSession()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        # A new session has Spark's default settings: take over this one (200 is the default).
        shuffle_partitions = self._spark.conf.get(_SHUFFLE_SETTING) or "200"
        spark.conf.set(_SHUFFLE_SETTING, shuffle_partitions)
        spark.conf.set(_BATCH_SETTING, str(self._batch))
        # By default Spark would list many files with a task per file.
        listing_tasks = _LISTING_TASKS_PER_CORE * spark.sparkContext.defaultParallelism
        spark.conf.set(_LISTING_SETTING, str(listing_tasks))
        for function in SQL_FUNCTIONS:
            spark.sql(function)
        _create_rows_view(spark, "bookies", inputs.dump.bookie_rows())
        if inputs.other is not None:
            _create_rows_view(spark, "other_bookies", inputs.other.bookie_rows())
        return spark


def _task_function_of(analysis: Analysis, plan: _Plan, options: Options) -> TaskFunction:
    """Return the function that yields a task's result rows, only the top ones if `top` is set."""
    run_task: TaskFunction = plan.job.sorted_reader.run_task
    if options.top is None or engine_steps.filters_rows(analysis, options):
        return run_task
    return _TopRows(run_task, analysis, options)


def _top_rows(frame: DataFrame, rank_column: str, analysis: Analysis, top: int) -> DataFrame:
    """Return the top rows by the column `rank_column`, ties in the declared order."""
    from pyspark.sql import functions as f

    terms = [f.desc_nulls_last(rank_column)]
    for column, direction in engine_steps.declared_order(analysis):
        if column == "scope_id":  # unsigned, by a flipped sign bit
            terms.append(f.col(column).bitwiseXOR(f.lit(-(1 << 63))))
        else:
            in_order = f.asc_nulls_last if direction == "ascending" else f.desc_nulls_last
            terms.append(in_order(column))
    return frame.orderBy(*terms).limit(top)


def _create_view(spark: SparkSession, name: str, dump: Dump, schema: Schema) -> None:
    check_files(spark, dump, [schema.name])
    _table_frame(spark, dump, schema).createOrReplaceTempView(name)


def _table_frame(spark: SparkSession, dump: Dump, schema: Schema) -> DataFrame:
    """Return a table. Rows of files that may repeat some are made distinct."""
    files = dump.files[schema.name]
    distinct_files, repeating_files = split_repeating(files)
    if not repeating_files:
        return files_frame(spark, dump, schema, files)
    distinct = files_frame(spark, dump, schema, repeating_files).distinct()
    if not distinct_files:
        return distinct
    return distinct.unionAll(files_frame(spark, dump, schema, distinct_files))


def _create_rows_view(spark: SparkSession, name: str, table: Any) -> None:
    spark.createDataFrame(table).createOrReplaceTempView(name)


def _run_shuffled(rows: DataFrame, job: KernelJob, schema: str) -> DataFrame:
    """Run a kernel over rows that Spark shuffles and sorts."""
    # The rows of a key have to be adjacent; the order of the keys does not matter.
    order = (*job.input.keys, *job.input.order)
    rows = rows.repartition(*job.input.keys).sortWithinPartitions(*order)
    return rows.mapInArrow(job.kernel, schema)


# -- a session's own tables


def read_dump(spark: SparkSession, dump: str | os.PathLike[str]) -> dict[str, DataFrame]:
    """Return the tables of the dump at a path or a URI as DataFrames by name, without duplicates.
    Reads only the manifest and footers. Raises what `open_dump` and `Dump.check` raise."""
    opened_dump = open_dump(dump)
    check_files(spark, opened_dump, DUMP_TABLES)
    schemas = DUMP_TABLES.items()
    return {name: _table_frame(spark, opened_dump, schema) for name, schema in schemas}


def totals(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return one row per bookie: ledgers, entries (by row and by group), sequence groups, logs."""
    return _run_query(spark, _TOTALS_SQL, tables)


def holes(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return the `holes` analysis, sorted: ledgers of which a bookie lacks entries between the
    first and the last it stores, by the stripe of the stored entries; needs no ledger metadata."""
    rows = _run_query(spark, READ_GROUPS, tables)
    keys = GROUPS.names[:3]  # bookie, scope and ledger
    rows = rows.repartition(*keys).sortWithinPartitions(*keys, "first_sequence_start")
    hole_rows = rows.mapInArrow(Holes(), spark_ddl(HOLES))
    return hole_rows.orderBy("bookie", "qualified_name")


def _run_query(spark: SparkSession, query: str, tables: dict[str, DataFrame]) -> DataFrame:
    """Run a query in the tables' session. Defines the three SQL functions there, but no views."""
    for function in SQL_FUNCTIONS:
        spark.sql(function)
    tables_by_name: dict[str, Any] = dict(tables)
    return spark.sql(_TABLE_PATTERN.sub(r"\1 {\2}", query), **tables_by_name)
