"""The local engine: DuckDB for SQL and sorting, kernels over its Arrow batches, no Java. Files that
are declared sorted are read one after the other, without DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.arguments import integer, optional
from bkstore.errors import BkstoreError, MissingDependency
from bkstore.files.scratch import scratch_directory
from bkstore.offline.analyses import engine_steps
from bkstore.offline.analyses.catalog import Analysis, Inputs, KernelInput, KernelJob
from bkstore.offline.analyses.duckdb_tables import open_duckdb, refusal_of_system, select_rows
from bkstore.offline.analyses.sorted_files import SortedFileScan, SortedPlan
from bkstore.offline.reading.read_tasks import plan_unsorted_tasks
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 16
_UNLIMITED_ROWS = 1 << 62
"""Rows per task: in effect unlimited, because one process gains nothing from small tasks."""


class LocalEngine:
    """Runs analyses in this process. Threads: one `run` at a time. `memory` is DuckDB's memory
    limit in MiB (it spills to disk below `scratch`), `threads` its number of threads (default: one
    per CPU). Raises `MissingDependency` without DuckDB."""

    def __init__(
        self, memory: int = 1024, threads: int | None = None, scratch: str | None = None
    ) -> None:
        memory = integer(64)("memory", memory)
        threads = optional(integer(1, 1 << 12))("threads", threads)
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependency.of("duckdb", "local", "analyses without Spark") from error
        self._duckdb = duckdb
        self._settings: dict[str, Any] = {"memory_limit": f"{memory}MiB"}
        if threads is not None:
            self._settings["threads"] = threads
        self._threaded = threads != 1  # for work outside DuckDB
        self._scratch = scratch

    def settings(self, spill_path: Path) -> dict[str, Any]:
        """Return DuckDB's settings: the limits, and where it spills to."""
        return {**self._settings, "temp_directory": str(spill_path)}

    def run(self, analysis: Analysis, inputs: Inputs) -> pa.Table:
        """Return the analysis's table, with the declared schema and in the declared order. Raises
        `InvalidArgument` for a missing input, `BkstoreError` if DuckDB fails (a full disk)."""
        engine_steps.check_inputs(analysis, inputs)
        # If the caller chose topics or other owners, only their ledgers are analyzed.
        inputs = engine_steps.limit_to_owners(analysis, inputs)
        sql_or_job = analysis.sql_or_job(inputs)
        if isinstance(sql_or_job, str):
            with self._connect(inputs, sql_or_job) as connection:
                table = connection.sql(sql_or_job).to_arrow_table()
        else:
            table = self._run_job(analysis, sql_or_job, inputs)
        return engine_steps.finish_table(table, analysis, inputs)

    def _run_job(self, analysis: Analysis, job: KernelJob, inputs: Inputs) -> pa.Table:
        """Run a kernel over sorted files directly, over other rows after DuckDB sorted them."""
        import pyarrow as pa

        # Sorted files are read without DuckDB. Without a plan, DuckDB has to sort all rows.
        other = inputs.other if analysis.needs_other else None
        plan = job.sorted_reader.plan(inputs.dump, other, inputs.metadata, _UNLIMITED_ROWS)
        batches: list[pa.RecordBatch] = []
        if plan is not None:
            for task in plan.tasks:
                batches += job.sorted_reader.run_task(task, threads=self._threaded)
        # All other rows: DuckDB sorts them, and the kernel reads its batches.
        if plan is None or plan.unsorted_files:
            # A SQL text selects the rows, or they are those of the unsorted files.
            rows = _ErrorKeepingBatches(self._condensed_rows(job, plan))
            sql_text = job.input.sql_text or ""
            with rows.raising_own_error(), self._connect(inputs, sql_text) as connection:
                source = sql_text or _unsorted_source(connection, job, plan, inputs, rows)
                batches += job.kernel(_read_batches(connection, _sort_query(source, job.input)))
        return pa.Table.from_batches(batches, analysis.schema.to_arrow())

    def _condensed_rows(self, job: KernelJob, plan: SortedPlan | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of unsorted files, condensed to groups; none if the job has no condenser,
        as DuckDB reads the files itself then."""
        if job.condenser is not None and plan is not None:
            for task in plan_unsorted_tasks(plan.unsorted_files, _UNLIMITED_ROWS):
                yield from job.condenser.run_task(task, threads=self._threaded)

    def is_duckdb_error(self, error: BaseException) -> bool:
        """Return whether an exception is one of DuckDB's own."""
        return isinstance(error, self._duckdb.Error)

    @contextmanager
    def _connect(self, inputs: Inputs, sql_text: str) -> Iterator[Any]:
        """Yield a DuckDB connection with the macros and the tables that a SQL text reads."""
        with scratch_directory("local", self._scratch) as scratch:
            try:
                with open_duckdb(self.settings(scratch)) as connection:
                    _create_views(connection, inputs, sql_text)
                    for needed in engine_steps.analyses_of_query(sql_text):
                        connection.register(
                            needed.name, self.run(needed, engine_steps.without_top(inputs))
                        )
                    yield connection
            except self._duckdb.Error as error:
                line = str(error).splitlines()[0]
                refusal = refusal_of_system(line, scratch)
                raise refusal or BkstoreError(f"the analysis failed: {line}") from error


class _ErrorKeepingBatches:
    """Batches that DuckDB reads; keeps their exception, which DuckDB's own error does not show."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except Exception as error:
            self._error = error
            raise

    @contextmanager
    def raising_own_error(self) -> Iterator[None]:
        """Raise the exception of the batches instead of the error that DuckDB makes of it."""
        try:
            yield
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise


def _unsorted_source(
    connection: Any,
    job: KernelJob,
    plan: SortedPlan | None,
    inputs: Inputs,
    rows: _ErrorKeepingBatches,
) -> str:
    """Register the rows of unsorted files, or the condensed `rows`; return the SQL to read them.
    For jobs that have no SQL text: these always have a plan."""
    import pyarrow as pa

    assert isinstance(job.sorted_reader, SortedFileScan)
    assert plan is not None
    if job.condenser is None:
        inputs.dump.check(job.sorted_reader.table)
        columns, is_remote = ", ".join(job.sorted_reader.columns), inputs.dump.is_remote
        rows_query = select_rows(connection, "others", plan.unsorted_files, is_remote)
        return f"select bookie, {columns} from ({rows_query})"  # noqa: S608
    connection.register("others", pa.RecordBatchReader.from_batches(GROUPS.to_arrow(), rows))
    return "select * from others"


def _create_views(connection: Any, inputs: Inputs, sql_text: str) -> None:
    """Create the views of the tables that a SQL text reads, and register bookies and metadata."""
    dumps = (("", inputs.dump), ("other_", inputs.other))
    for (prefix, dump), names in zip(dumps, engine_steps.tables_of_query(sql_text)):
        if dump is None:
            continue
        dump.check(*names)
        for name in names:
            query = select_rows(connection, f"{prefix}{name}", dump.files[name], dump.is_remote)
            connection.execute(f'create view "{prefix}{name}" as {query}')
        connection.register(f"{prefix}bookies", dump.bookie_rows())
    for view_name, table in engine_steps.tables_of_inputs(inputs, sql_text).items():
        connection.register(view_name, table)


def _sort_query(sql_text: str, kernel_input: KernelInput) -> str:
    terms = ", ".join(engine_steps.order_terms((*kernel_input.keys, *kernel_input.order)))
    return f"select * from ({sql_text}) fed order by {terms}"  # noqa: S608


def _read_batches(connection: Any, sql_text: str) -> Iterator[pa.RecordBatch]:
    return iter(connection.sql(sql_text).to_arrow_reader(_BATCH_ROWS))
