"""Bulk load with Spark: executors sort rows and write index pieces, the driver assembles them.

Files that a manifest declares sorted are read by the tasks that write the pieces, one ledger range
each: nothing is shuffled. Rows of other files are cut into key ranges (`repartitionByRange`) and
sorted in each, ids unsigned. Each task writes RocksDB table files or index files (`load_tasks`).
The driver assembles them, compares the result with the dump (range by range, or by a join if files
are not sorted), and renames it (`bkstore.offline.load`). Figures: `docs/performance.md`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.arguments import integer, optional
from bkstore.errors import CorruptionError, MissingDependency
from bkstore.ids import MAX_ENTRY_ID, MAX_LOG_ID
from bkstore.index.api import EntryIndex
from bkstore.offline import load as local
from bkstore.offline.index_building.row_writers import TableFile
from bkstore.offline.load import IndexLayout, LoadJob, LoadResult
from bkstore.offline.load.compared_ranges import plan_comparison
from bkstore.offline.load.declared_order import group_by_directory, plan_load_tasks
from bkstore.offline.load.dump_rows import ENTRY_COLUMNS, LoadSource
from bkstore.offline.reading.dump_folder import DumpFolder
from bkstore.offline.reading.file_locations import require_local_path
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS
from bkstore.spark.errors import INVALID_ROW_PREFIX, convert_spark_errors
from bkstore.spark.load_tasks import (
    COMPARED_DDL,
    PIECE_DDL,
    CompareRanges,
    ShuffledRows,
    SortedFileRows,
    WritePieces,
)
from bkstore.spark.parquet_readers import needs_workers, read_by_workers
from bkstore.spark.read_tasks import rows_per_task, task_table
from bkstore.spark.source.registering import register
from bkstore.tables import ENTRIES, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_PIECE_ROWS = 1 << 22
"""Approximate maximum number of rows that a task writes: one table file."""

_MIN_TASK_ROWS = 1 << 16
"""Minimum number of rows of a task."""

_JOIN_PARTITION_ROWS = 1 << 20
"""Rows in a partition of the comparison, which sorts them in memory."""

_SIGN_BIT = -(1 << 63)
_KEY = ("home", *LEDGER_COLUMNS, "entry_id")


def load(
    spark: SparkSession,
    dump: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: IndexLayout = "rocksdb",
    *,
    bookie: str | None = None,
    directories: int | None = None,
    compare: bool = True,
    partitions: int | None = None,
) -> LoadResult:
    """Build the index of a bookie of a dump at `out`, as `bkstore.offline.load.load`, with Spark.

    `dump` and `out` lie on storage that the driver and all executors share under one path.
    `partitions` is the number of key ranges (default: one per core, or per 4 million rows if more).
    Spark repeats failed tasks. Raises as the other; Spark's errors are a one-line `BkstoreError`.
    """
    if find_spec("pandas") is None:  # which mapInArrow asks for
        raise MissingDependency.of("pandas", "spark", "a bulk load with Spark")
    optional(integer(1, 2**31 - 1))("partitions", partitions)
    require_local_path(out, "an index")
    source, target = DumpFolder(dump).absolute(), Path(out).absolute()
    engine = SparkLoadEngine(spark, partitions)
    return local.load(
        source, target, to, bookie=bookie, directories=directories, compare=compare, engine=engine
    )


class SparkLoadEngine:
    """Writes and compares the rows of a load with Spark."""

    def __init__(self, spark: SparkSession, partitions: int | None = None) -> None:
        self._spark = spark
        self._partitions: int | None = optional(integer(1, 2**31 - 1))("partitions", partitions)

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Sort and write the rows; return the pieces, and the number of duplicate rows dropped."""
        files = group_by_directory(job.source)
        unsorted_files = [file for declared in files for file in declared.unsorted_files]
        frames = []
        with convert_spark_errors("the bulk load"):
            if any(declared.sorted_files for declared in files):
                frames.append(self._write_sorted_files(job))
            if unsorted_files:
                unsorted_source = replace(job.source, files=tuple(unsorted_files))
                frames.append(self._sort_and_write(job, unsorted_source))
            rows = [row for frame in frames for row in frame.collect()]
        pieces = [
            TableFile(row.directory, row.has_scope, row.path, row.rows, row.bytes) for row in rows
        ]
        return pieces, sum(row.duplicates for row in rows)

    def _write_sorted_files(self, job: LoadJob) -> DataFrame:
        """Return a frame that writes the pieces of sorted files, which executors read."""
        source, rows = job.source, self._task_rows(job.source)
        tasks = task_table(self._spark.newSession(), plan_load_tasks(source, rows), rows)
        reader = SortedFileRows(replace(source, files=(), ledgers=()))  # tasks name their files
        writer = self.piece_writer(job.layout, str(job.work / "ready"), reader)
        return tasks.mapInArrow(writer, PIECE_DDL)

    def _task_rows(self, source: LoadSource) -> int:
        if self._partitions is None:
            return rows_per_task(self._spark, source.rows, _MAX_PIECE_ROWS)
        return max(-(-source.rows // self._partitions), 1)

    def _sort_and_write(self, job: LoadJob, source: LoadSource) -> DataFrame:
        """Return a frame that writes the pieces of unsorted files, which Spark reads and sorts."""
        rows = self._entry_rows(source)
        sort_columns = self._sort_columns(rows)
        # The sort columns are home (the directory), scope, ledger, entry, location. A task writes
        # whole index files, so all entries of a ledger are in one range; in a database a range may
        # begin at any entry.
        range_columns = sort_columns[:3] if job.layout == "idx" else sort_columns[:4]
        ranges = rows.repartitionByRange(self._range_count(source), *range_columns)
        ordered = ranges.sortWithinPartitions(*sort_columns).select(*_KEY, "location")
        writer = self.piece_writer(job.layout, str(job.work / "spark"), ShuffledRows())
        return ordered.mapInArrow(writer, PIECE_DDL)

    def piece_writer(
        self, layout: str, folder: str, rows: ShuffledRows | SortedFileRows
    ) -> WritePieces:
        """Return the function that each task runs."""
        return WritePieces(layout, folder, rows)

    def _range_count(self, source: LoadSource) -> int:
        """Return the number of key ranges: one a core at least, none too small or too large."""
        if self._partitions is not None:
            return self._partitions
        cores = self._spark.sparkContext.defaultParallelism
        max_count = -(-source.rows // _MIN_TASK_ROWS)
        return max(min(max(cores, -(-source.rows // _MAX_PIECE_ROWS)), max_count), 1)

    def _sort_columns(self, rows: DataFrame) -> list[Column]:
        """Return the columns to sort by; flipping the sign bit sorts ids as unsigned."""
        from pyspark.sql import functions as f

        sign_bit = f.lit(_SIGN_BIT)
        scope_id, ledger_id = (rows[name].bitwiseXOR(sign_bit) for name in LEDGER_COLUMNS)
        return [rows["home"], scope_id, ledger_id, rows["entry_id"], rows["location"]]

    def _entry_rows(self, source: LoadSource) -> DataFrame:
        """Return rows of home (the ledger's directory), scope, ledger, entry and location."""
        from pyspark.sql import functions as f

        if needs_workers(source.files):
            rows = rows_per_task(self._spark, source.rows)
            frame = read_by_workers(self._spark.newSession(), source.files, rows, _ENTRY_SCHEMA)
        elif source.entries:
            frame = self._spark.read.parquet(*source.entries)
        else:
            frame = self._spark.createDataFrame([], _ENTRY_DDL)
        if not source.has_one_bookie:
            frame = frame.where(frame["bookie"] == source.bookie)
        # A row that cannot be in an index fails the query, with its columns in the message.
        is_invalid = _is_invalid_row(frame, source)
        texts = [f.lit(f"{INVALID_ROW_PREFIX}bookie {source.bookie}")]
        for name in _CHECKED_COLUMNS:
            texts += f.lit(f" {name} "), f.coalesce(frame[name].cast("string"), f.lit("null"))
        refusal = f.raise_error(f.concat(*texts)).cast("bigint")
        location = f.shiftleft(frame["log_id"], 32).bitwiseOR(frame["position"])
        home = _directory_number(frame, source.directories).alias("home")
        checked_location = f.when(is_invalid, refusal).otherwise(location).alias("location")
        return frame.select(home, *LEDGER_COLUMNS, "entry_id", checked_location)

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Compare the index with the dump; return the number of rows, raise for a difference. Tasks
        read sorted files and the index side by side; unsorted files are joined with it."""
        with convert_spark_errors("comparing the index with the dump"):
            if any(declared.unsorted_files for declared in group_by_directory(job.source)):
                return self._compare_by_join(job, data)
            return self._compare_sorted_files(job, index, data)

    def _compare_sorted_files(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Compare the rows of sorted files with the written index below `data`, a range of ledgers
        in each task. Return the number of rows that were compared; a task raises for one that
        differs."""
        source, rows = job.source, self._task_rows(job.source)
        # Tasks open the index files of their ledgers; a database is read by ranges instead.
        ledgers = index.ledgers() if job.layout == "idx" else []
        ranges = plan_comparison(source, rows, ledgers)
        tasks = task_table(self._spark.newSession(), ranges, rows)
        no_files = replace(source, files=(), ledgers=())  # tasks name theirs: less to send
        compare_ranges = CompareRanges(no_files, job.layout, data)
        compared = tasks.mapInArrow(compare_ranges, COMPARED_DDL)
        return sum(int(row.rows) for row in compared.collect())

    def _compare_by_join(self, job: LoadJob, data: Path) -> int:
        """Join the dump's rows with those of the index; return their number, or raise
        `CorruptionError` for the first row that differs."""
        from pyspark.sql import functions as f

        register(self._spark)
        # Of several rows of an entry in the dump, the highest location counts, as in a load.
        keys = (*LEDGER_COLUMNS, "entry_id")
        min_count = job.source.rows // _JOIN_PARTITION_ROWS
        partition_count = max(self._range_count(job.source), min_count)
        rows = self._entry_rows(job.source).repartition(partition_count, *keys)
        expected = rows.groupBy(*keys).agg(f.max("location").alias("expected"))
        # What the new index has, as the data source reads it.
        entries = self._spark.read.format("bookie").load(str(data))
        location = f.shiftleft(entries["log_id"], 32).bitwiseOR(entries["position"])
        stored = entries.select(*keys, location.alias("found")).repartition(partition_count, *keys)
        # Rows of either side only have a null on the other, which differs too.
        joined = expected.join(stored, list(keys), "full_outer")
        differs = ~joined["expected"].eqNullSafe(joined["found"])
        first_difference = f.min(f.when(differs, f.struct(*keys, "expected", "found")))
        row = joined.agg(f.count("*").alias("rows"), first_difference.alias("first")).collect()[0]
        if row.first is not None:
            raise CorruptionError(data, None, f"differs from the dump: {row.first.asDict()}")
        return int(row.rows)


_ENTRY_SCHEMA = Schema("entries", tuple(c for c in ENTRIES.columns if c.name in ENTRY_COLUMNS))
_ENTRY_DDL = (
    "bookie string, dir_index int, scope_id bigint, ledger_id bigint, entry_id bigint, "
    "log_id bigint, position bigint"
)
_CHECKED_COLUMNS = ("dir_index", *LEDGER_COLUMNS, "entry_id", "log_id", "position")


def _directory_number(frame: DataFrame, directories: int) -> Any:
    """Return the column of a ledger's directory number: its unsigned id modulo their count."""
    from pyspark.sql import functions as f

    if directories == 1:
        return f.lit(0)
    # Spark has no unsigned modulo: take the upper 63 bits and the lowest bit separately.
    upper_bits = f.shiftrightunsigned(frame["ledger_id"], 1)
    lowest_bit = frame["ledger_id"].bitwiseAND(f.lit(1))
    return ((upper_bits % directories * 2 + lowest_bit) % directories).cast("int")


def _is_invalid_row(frame: DataFrame, source: LoadSource) -> Any:
    """Return the condition for rows that cannot be in an index, as in `offline.load.dump_rows`."""
    from pyspark.sql import functions as f

    entry_id, log_id, position = frame["entry_id"], frame["log_id"], frame["position"]
    is_invalid = (frame["scope_id"] == 0) & (frame["ledger_id"] < 0)
    is_invalid |= (entry_id < 0) | (entry_id > MAX_ENTRY_ID)
    is_invalid |= (log_id < 0) | (log_id > MAX_LOG_ID)
    is_invalid |= (position < 0) | (position >= 1 << 32)
    is_invalid |= (log_id == 0) & (position == 0)  # location 0 means absent
    if source.layout == "rocksdb":
        is_invalid |= frame["dir_index"] != _directory_number(frame, source.directories)
    for name in _CHECKED_COLUMNS:
        is_invalid |= frame[name].isNull()
    return f.coalesce(is_invalid, f.lit(True))  # a comparison with null is null
