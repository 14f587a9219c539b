"""Spark as an engine of `bkstore.offline.analyses`: the same texts and kernels, on many machines.

SQL texts run as they are. A kernel runs in executors' Python workers (`mapInArrow`): over sorted
files, which they open themselves by a table of tasks (`read_tasks`), so that no row crosses from
the JVM and nothing is shuffled. Rows of other files are brought together by ledger (`repartition`,
`sortWithinPartitions`), entries condensed to groups first, where they lie. Rows are never
exploded, and nothing is collected but the answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.arguments import whole
from bkstore.errors import MissingDependency
from bkstore.offline.analyses.catalog import Analysis, Inputs, Options, Pass
from bkstore.offline.analyses.engine_steps import checked, finish, tables_in, top_rows
from bkstore.offline.analyses.kernels.holes import Holes
from bkstore.offline.analyses.sorted_files import Direct
from bkstore.offline.analyses.sql import READ_GROUPS
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.open_dump import Dump, open_dump
from bkstore.offline.reading.read_tasks import loose_tasks, split_repeating
from bkstore.spark.errors import spark_errors
from bkstore.spark.read_tasks import (
    Answers,
    answered,
    check_files,
    collected,
    ddl,
    needs_workers,
    stored,
    task_rows,
)
from bkstore.tables import ENTRIES, GROUPS, HOLES, Schema
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FUNCTIONS = (
    "create or replace temporary function bk_div(a bigint, b bigint) returns bigint return a div b",
    "create or replace temporary function bk_unsigned(a bigint) returns bigint"
    " return a ^ (-9223372036854775807 - 1)",
    "create or replace temporary function bk_qualified(a bigint, b bigint) returns string"
    " return lower(concat(lpad(hex(a), 16, '0'), lpad(hex(b), 16, '0')))",
)
"""The functions of `bkstore.offline.analyses.sql`, in Spark's words."""

_WORTH = {"entries": 1, "groups": 16}
"""What a row of a table costs its kernel, in rows of entries: a task should be worth it."""

_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTINGS_A_CORE = 2

_TABLE = re.compile(r"\b(from|join) (entries|groups|ledgers)\b")

_TOTALS = """
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
    """Tasks of about `rows` rows that are answered as they are, and files to be sorted first."""

    made: Pass
    tasks: list[Any]
    others: list[DumpFile]
    rows: int


@dataclass(frozen=True)
class _Declared:
    """The views of some inputs, in a session of their own; `made` are the names of those there are.

    Spark is not asked for them: it would find a table of the catalog, too, which is the user's.
    """

    inputs: Inputs
    spark: SparkSession
    made: set[str] = field(default_factory=set)

    def is_of(self, inputs: Inputs) -> bool:
        """Return whether `inputs` are these, whatever is asked of them."""
        mine = self.inputs
        return (
            inputs.dump is mine.dump
            and inputs.metadata is mine.metadata
            and inputs.other is mine.other
        )

    def read_by(self, text: str) -> None:
        """Make the views of tables that a text reads, each once."""
        both = (("", self.inputs.dump), ("other_", self.inputs.other))
        for (mark, dump), names in zip(both, tables_in(text)):
            for name in names:
                if dump is not None and f"{mark}{name}" not in self.made:
                    _view(self.spark, f"{mark}{name}", dump, DUMP_TABLES[name])
                    self.made.add(f"{mark}{name}")
        said = self.inputs.metadata
        if said is not None and "metadata" not in self.made and re.search(r"\bmetadata\b", text):
            _rows(self.spark, "metadata", said.table)
            self.made.add("metadata")


class _TopAnswers:
    """Answers a task with its top rows: those of all tasks are among them. It can be pickled."""

    def __init__(self, answers: Answers, analysis: Analysis, options: Options) -> None:
        self._answers, self._analysis, self._options = answers, analysis, options

    def __call__(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield one batch at most."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._answers(task), self._analysis.schema.to_arrow())
        yield from top_rows(table, self._analysis, self._options).to_batches()


class SparkEngine:
    """Runs analyses in a Spark session; dumps lie where the driver and all executors see them.

    `batch` is how many rows a Python worker gets at a time. The session's own views and
    functions stay as they are: the work is done in a session beside it. Raises
    `MissingDependency` without pandas, which `mapInArrow` asks for.
    """

    def __init__(self, spark: SparkSession, batch: int = 1 << 16) -> None:
        if find_spec("pandas") is None:
            raise MissingDependency.of("pandas", "spark", "analyses with Spark")
        self._batch = whole(1, 2**31 - 1)("batch", batch)
        self._spark = spark
        self._declared: _Declared | None = None

    def run(self, analysis: Analysis, inputs: Inputs) -> Any:
        """Return the analysis's pyarrow table, of the declared schema and order.

        Raises `InvalidArgument` where the inputs lack what it needs, `BkstoreError` in one line
        for what Spark reports.
        """
        checked(analysis, inputs)
        made, options = analysis.work(inputs), inputs.options
        with spark_errors(f"the analysis {analysis.name}"):
            plan = None if isinstance(made, str) else self._plan(analysis, made, inputs)
            if plan is not None and not plan.others:
                table = self._collected(analysis, plan, options)
            else:
                table = self._frame(analysis, made, plan, inputs).toArrow()
        return finish(table, analysis, options)

    def frame(self, analysis: Analysis, inputs: Inputs) -> DataFrame:
        """Return the analysis as a DataFrame of the declared columns.

        For answers that do not fit the driver: write them from the executors. Rows are in no
        order; with `Options.top` they are the top ones, most first.

        At once it reads what a plan is made of: the footers of tables that SQL names (of more
        than 64 files in a job on executors, and Spark lists them), those of `ledgers` where
        something is judged or compared, and no row. Raises as `run` does; what is found where the
        DataFrame is used comes as Spark's own error.
        """
        checked(analysis, inputs)
        made = analysis.work(inputs)
        with spark_errors(f"the analysis {analysis.name}"):
            plan = None if isinstance(made, str) else self._plan(analysis, made, inputs)
            return self._frame(analysis, made, plan, inputs)

    def _plan(self, analysis: Analysis, made: Pass, inputs: Inputs) -> _Plan | None:
        """Return how tasks read the files; None where all of them are to be shuffled."""
        worth = _WORTH[made.direct.table]
        files = inputs.dump.files[made.direct.table]
        rows = task_rows(self._spark, worth * sum(file.rows for file in files)) // worth
        other = inputs.other if analysis.needs_other else None
        planned = made.direct.plan(inputs.dump, other, inputs.metadata, rows)
        return None if planned is None else _Plan(made, *planned, rows)

    def _collected(self, analysis: Analysis, plan: _Plan, options: Options) -> pa.Table:
        """Return what tasks make of sorted files, on the driver; of each the top rows, if asked."""
        import pyarrow as pa

        found = collected(self._spark, plan.tasks, plan.rows, _answers(analysis, plan, options))
        return pa.Table.from_batches(found, analysis.schema.to_arrow())

    def _frame(
        self, analysis: Analysis, made: Pass | str, plan: _Plan | None, inputs: Inputs
    ) -> DataFrame:
        """Return what is asked: all rows, or the top ones in order."""
        frame, options = self._all_rows(analysis, made, plan, inputs), inputs.options
        if options.top is None:
            return frame
        return _top(frame, analysis.ranked_by(options), analysis, options.top)

    def _all_rows(
        self, analysis: Analysis, made: Pass | str, plan: _Plan | None, inputs: Inputs
    ) -> DataFrame:
        """Return what is made by a text, by tasks over sorted files, of others shuffled.

        Of tasks no more than their top rows, if those are asked for.
        """
        spark = self._session(inputs, made if isinstance(made, str) else "")
        if isinstance(made, str):
            return spark.sql(made).select(*analysis.schema.names)
        schema = ddl(analysis.schema)
        if plan is None:
            return self._fed(made, inputs, schema)
        answers = _answers(analysis, plan, inputs.options)
        frame = answered(spark, plan.tasks, plan.rows, answers, schema)
        if not plan.others:
            return frame
        others = _shuffled(self._other_rows(spark, plan, inputs), made, schema)
        return frame.unionAll(others) if plan.tasks else others

    def _other_rows(self, spark: SparkSession, plan: _Plan, inputs: Inputs) -> DataFrame:
        """Return the rows of files that are not sorted; condensed, if they can be."""
        made = plan.made
        if made.before is not None:
            tasks = loose_tasks(plan.others, plan.rows)
            return answered(spark, tasks, plan.rows, made.before.answers, ddl(GROUPS))
        assert isinstance(made.direct, Direct)
        check_files(spark, inputs.dump, [made.direct.table])
        read = _files(spark, inputs.dump, ENTRIES, plan.others)
        return read.select("bookie", *made.direct.columns)

    def _fed(self, made: Pass, inputs: Inputs, schema: str) -> DataFrame:
        text = made.feed.text or ""
        return _shuffled(self._session(inputs, text).sql(text), made, schema)

    def _session(self, inputs: Inputs, text: str) -> SparkSession:
        """Return a session of its own that knows the tables of these inputs that a text reads."""
        if self._declared is None or not self._declared.is_of(inputs):
            self._declared = _Declared(inputs, self._fresh(inputs))
        self._declared.read_by(text)
        return self._declared.spark

    def _fresh(self, inputs: Inputs) -> SparkSession:
        spark = self._spark.newSession()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", _partitions(self._spark))
        spark.conf.set(_BATCH, str(self._batch))
        # Of many files Spark would look at each in a task of its own.
        spark.conf.set(_LISTING, str(_LISTINGS_A_CORE * spark.sparkContext.defaultParallelism))
        for function in FUNCTIONS:
            spark.sql(function)
        _rows(spark, "bookies", inputs.dump.bookie_rows())
        if inputs.other is not None:
            _rows(spark, "other_bookies", inputs.other.bookie_rows())
        return spark


def _answers(analysis: Analysis, plan: _Plan, options: Options) -> Answers:
    """Return how a task is answered: by all its rows, or by the top ones."""
    every: Answers = plan.made.direct.answers
    return every if options.top is None else _TopAnswers(every, analysis, options)


def _partitions(spark: SparkSession) -> str:
    found: str = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    return found


def _top(frame: DataFrame, ranked_by: str, analysis: Analysis, top: int) -> DataFrame:
    from pyspark.sql import functions as f

    names = [name for name in analysis.order if name != "scope_id"]
    terms = [f.desc_nulls_last(ranked_by), *map(f.col, names)]
    if "scope_id" in analysis.order:
        terms.append(f.col("scope_id").bitwiseXOR(f.lit(-(1 << 63))))
    return frame.orderBy(*terms).limit(top)


def _view(spark: SparkSession, name: str, dump: Dump, schema: Schema) -> None:
    check_files(spark, dump, [schema.name])
    _set_of_rows(spark, dump, schema).createOrReplaceTempView(name)


def _set_of_rows(spark: SparkSession, dump: Dump, schema: Schema) -> DataFrame:
    """Return a table as a set of rows: those of files that may repeat some come once."""
    files = dump.files[schema.name]
    once, repeating = split_repeating(files)
    if not repeating:
        return _files(spark, dump, schema, files)
    distinct = _files(spark, dump, schema, repeating).distinct()
    return distinct.unionAll(_files(spark, dump, schema, once)) if once else distinct


def _files(spark: SparkSession, dump: Dump, schema: Schema, files: Sequence[DumpFile]) -> DataFrame:
    """Return files of a table as a DataFrame: Java reads what it can, Python workers the rest."""
    if dump.is_remote or needs_workers(files):
        return stored(spark, files, task_rows(spark, sum(file.rows for file in files)), schema)
    return spark.read.schema(ddl(schema)).parquet(*(file.path for file in files))


def _rows(spark: SparkSession, name: str, table: Any) -> None:
    spark.createDataFrame(table).createOrReplaceTempView(name)


def _shuffled(rows: DataFrame, made: Pass, schema: str) -> DataFrame:
    """Return what a kernel makes of rows, those of a ledger brought together."""
    # Rows of a key have to lie together; in which order keys come is all the same here.
    order = (*made.feed.keys, *made.feed.order)
    rows = rows.repartition(*made.feed.keys).sortWithinPartitions(*order)
    return rows.mapInArrow(made.kernel, schema)


# -- a session's own tables


def read_dump(spark: SparkSession, dump: str | os.PathLike[str]) -> dict[str, DataFrame]:
    """Return the tables of the dump at a path or a URI as DataFrames by name, sets of rows.

    Reads the manifest and footers only. Raises as `open_dump` and `Dump.check` do.
    """
    opened = open_dump(dump)
    check_files(spark, opened, DUMP_TABLES)
    return {schema.name: _set_of_rows(spark, opened, schema) for schema in DUMP_TABLES.values()}


def totals(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return one row a bookie: ledgers, entries (by row and by group), sequence groups, logs."""
    return _ask(spark, _TOTALS, tables)


def holes(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return the `holes` analysis as a sorted DataFrame: ledgers of which a bookie lacks entries
    between its first and its last, judged by their own stripe, without ledger metadata.
    """
    rows = _ask(spark, READ_GROUPS, tables)
    keys = GROUPS.names[:3]
    rows = rows.repartition(*keys).sortWithinPartitions(*keys, "first_sequence_start")
    found = rows.mapInArrow(Holes(), ddl(HOLES))
    return found.orderBy("bookie", "qualified_name")


def _ask(spark: SparkSession, query: str, tables: dict[str, DataFrame]) -> DataFrame:
    """Ask in the session of the tables, which gets the three functions and no view."""
    for function in FUNCTIONS:
        spark.sql(function)
    named: dict[str, Any] = dict(tables)
    return spark.sql(_TABLE.sub(r"\1 {\2}", query), **named)
