"""Analyses of sorted dump files, read task by task without a sort or a shuffle. Files that the
manifest declares sorted are split into tasks, each with all rows of its ledgers. The same code runs
in this process and in Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.offline.analyses.kernels.index_columns import check_columns, int64
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.reading.disjoint_files import group_by_bookie, split_disjoint
from bkstore.offline.reading.dump_file import DumpFile, check_footer, has_nulls, has_only_bookie
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.ledger_ranges import SORTED_BY, run_starts
from bkstore.offline.reading.merged_streams import merge_sorted_streams
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.read_tasks import (
    FileRead,
    ReadTask,
    plan_sorted_tasks,
    plan_unsorted_tasks,
)
from bkstore.offline.reading.row_stream import BATCH_ROWS, read_rows
from bkstore.tables.dump import DUMP_TABLES, LEDGERS

if TYPE_CHECKING:
    import pyarrow as pa

Kernel = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

_BATCH_ROWS = BATCH_ROWS


class SortedPlan(NamedTuple):
    """`tasks` over sorted files, and the files whose rows have to be sorted first."""

    tasks: list[Any]
    unsorted_files: list[DumpFile]


class SortedFileReader(Protocol):
    """How an analysis reads sorted files; it can be pickled."""

    @property
    def table(self) -> str:
        """The name of the table that is read."""

    def plan(
        self, dump: Dump, other: Dump | None, metadata: Metadata | None, rows: int
    ) -> SortedPlan | None:
        """Return tasks of about `rows` rows, or None if all rows have to be sorted first."""

    def run_task(self, task: Any, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the result rows of a task; with `threads`, columns are decoded in parallel."""


@dataclass(frozen=True)
class SortedFileScan:
    """How sorted files of one table are analyzed: the columns to read, and a factory of the kernel.
    `make_kernel` gets the bookie of all rows, or None if rows have a bookie column. With
    `skip_unread`, ledgers that the dump could not read are left out, and either all files are
    sorted or none is read here: a SQL text feeds the unsorted ones. It can be pickled."""

    table: str
    columns: tuple[str, ...]
    make_kernel: Callable[[str | None], Kernel]
    skip_unread: bool = False

    def plan(
        self, dump: Dump, other: Dump | None, _metadata: Metadata | None, rows: int
    ) -> SortedPlan | None:
        """Return tasks of about `rows` rows over sorted files, and the files that are not sorted.
        With two dumps, or `skip_unread`, returns None if any file is not sorted: all rows of a
        bookie are then needed together."""
        dumps = [dump] if other is None else [dump, other]
        for each_dump in dumps:
            each_dump.check_empty_files(self.table)
        if other is not None or self.skip_unread:
            tasks = _plan_dumps(self.table, dumps, rows)
            return None if tasks is None else SortedPlan(tasks, [])
        plan = SortedPlan([], [])
        for bookie_files in group_by_bookie(dump.files[self.table]).values():
            sorted_files, unsorted_files = split_disjoint(bookie_files)
            plan.tasks.extend(plan_sorted_tasks([sorted_files], rows))
            plan.unsorted_files.extend(unsorted_files)
        return plan

    def run_task(self, task: ReadTask, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the kernel's rows for a task. Memory: a batch per dump, and the kernel's own."""
        rows_per_dump = [
            chain.from_iterable(read_validated_rows(read, self.columns, threads) for read in reads)
            for reads in task.reads_per_dump
        ]
        # The rows of two dumps are merged by ledger, with a column for the number of the dump.
        rows = rows_per_dump[0] if len(rows_per_dump) == 1 else merge_sorted_streams(rows_per_dump)
        if task.excluded_ledgers:
            rows = _exclude_ledgers(rows, task.excluded_ledgers)
        run_kernel = self.make_kernel(task.bookie)
        yield from run_kernel(rows)


def read_validated_rows(
    read: FileRead, columns: Sequence[str], threads: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield validated rows of `entries` or `groups`, read as `read_rows` does. Raises
    `CorruptionError`, naming the file, for rows that a kernel would refuse. All batches get one
    schema, although files that Spark wrote declare their columns nullable."""
    import pyarrow as pa

    sorted_by, declared = SORTED_BY[read.table], DUMP_TABLES[read.table].to_arrow()
    schema = pa.schema([declared.field(column_name) for column_name in columns])
    for batch in read_rows(read, columns, sorted_by, batch_rows=_BATCH_ROWS, threads=threads):
        try:
            check_columns(batch)
        except CorruptionError as error:
            raise error.relocate(read.path) from None
        arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exclude_ledgers(
    batches: Iterator[pa.RecordBatch], excluded_ledgers: Sequence[LedgerId]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the rows of some ledgers. The rows of a ledger are adjacent."""
    import pyarrow as pa

    excluded = {ledger_id.signed for ledger_id in excluded_ledgers}
    for batch in batches:
        scope_id, ledger_id = int64(batch, "scope_id"), int64(batch, "ledger_id")
        starts = run_starts(scope_id, ledger_id)
        ids = zip(scope_id[starts].tolist(), ledger_id[starts].tolist())
        is_kept = [id_pair not in excluded for id_pair in ids]
        if all(is_kept):
            yield batch
            continue
        is_row_kept = np.repeat(is_kept, np.diff(np.append(starts, batch.num_rows)))
        yield batch.filter(pa.array(is_row_kept))


def _plan_dumps(table: str, dumps: Sequence[Dump], rows: int) -> list[ReadTask] | None:
    """Return tasks over the bookies that every dump has read, without the ledgers that one of them
    could not read; None if a file is not sorted."""
    table_files = [group_by_bookie(dump.files[table]) for dump in dumps]
    ledger_files = [group_by_bookie(dump.files["ledgers"]) for dump in dumps]
    tasks: list[ReadTask] = []
    for bookie in sorted(set.intersection(*(set(dump.bookies) for dump in dumps))):
        split_files = [split_disjoint(files.get(bookie, [])) for files in table_files]
        if any(unsorted_files for _, unsorted_files in split_files):
            return None
        bookie_files = [file for files in ledger_files for file in files.get(bookie, [])]
        unread_ids = {ledger_id for file in bookie_files for ledger_id in unread_ledgers(file)}
        sorted_files = [files for files, _ in split_files]
        tasks += plan_sorted_tasks(sorted_files, rows, unread_ids)
    return tasks


def unread_ledgers(file: DumpFile) -> Iterator[LedgerId]:
    """Yield the ledgers in a `ledgers` file whose entries are null: the dump could not read them.
    Skips the rows if the column statistics show no null. Raises as `read_rows` does."""
    import pyarrow.compute as pc

    columns = ("scope_id", "ledger_id", "entries")
    with opened_parquet(file.path) as parquet_file:
        check_footer(file.path, parquet_file, LEDGERS, ("bookie", *columns), file.rows)
        footer = parquet_file.metadata
        if has_only_bookie(footer, file.bookie) and not has_nulls(footer, "entries"):
            return
    # One task of one read: the whole file.
    tasks = plan_unsorted_tasks([file], max(file.rows, 1))
    for read in (read for task in tasks for (read,) in task.reads_per_dump):
        for batch in read_rows(read, columns):
            for row in batch.filter(pc.is_null(batch.column("entries"))).to_pylist():
                yield _row_ledger_id(file, row["scope_id"], row["ledger_id"])


def _row_ledger_id(file: DumpFile, scope_id: int | None, ledger_id: int | None) -> LedgerId:
    """Return the ledger id of a row; raises `CorruptionError` naming the file if it is not one."""
    if scope_id is None or ledger_id is None:
        raise CorruptionError(file.path, None, "a ledger's id is null")
    try:
        return LedgerId.from_signed(scope_id, ledger_id)
    except InvalidArgument as error:
        raise CorruptionError(file.path, None, str(error)) from None
