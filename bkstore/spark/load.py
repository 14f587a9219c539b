"""Bulk load with Spark: rows sorted by many executors, written as pieces, put together here.

Files that a manifest declares sorted are read by the tasks that write them, ledger range by
ledger range: nothing is shuffled. Rows of other files are cut into key ranges
(`repartitionByRange`) and sorted in each, ids unsigned. Each task writes RocksDB table files or
index files (`load_tasks`). The driver puts them together, has the result compared with the dump
(range by range by the tasks that read both, or by a join where files are not sorted), and gives it
its name: `bkstore.offline.load`. Figures: `docs/performance.md`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.arguments import optional, whole
from bkstore.errors import CorruptionError, MissingDependency
from bkstore.ids import MAX_ENTRY_ID, MAX_LOG_ID
from bkstore.index.api import EntryIndex
from bkstore.offline import load as local
from bkstore.offline.index_building.row_writers import TableFile
from bkstore.offline.load import LoadJob, LoadResult, To
from bkstore.offline.load.compared_ranges import compared_ranges
from bkstore.offline.load.declared_order import declared, ordered_tasks
from bkstore.offline.load.dump_rows import ENTRY_COLUMNS, LoadSource
from bkstore.offline.reading.dump_folder import DumpFolder
from bkstore.offline.reading.places import only_path
from bkstore.spark.errors import RAISED, spark_errors
from bkstore.spark.load_tasks import (
    COMPARED,
    MESSAGE,
    CompareRanges,
    ReadTasks,
    SortedRows,
    WritePieces,
)
from bkstore.spark.read_tasks import needs_workers, stored, task_rows, task_table
from bkstore.spark.source.registering import register
from bkstore.tables import ENTRIES, Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PIECE_ROWS = 1 << 22
"""Rows that a task writes at most, about: a table file's worth."""

_LEAST_ROWS = 1 << 16
"""Fewer are not worth a task of their own."""

_JOINED_ROWS = 1 << 20
"""Rows of a partition of the comparison, which are sorted in memory."""

_FLIP = -(1 << 63)
_KEY = ("home", "scope_id", "ledger_id", "entry_id")


def load(
    spark: SparkSession,
    dump: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: To = "rocksdb",
    *,
    bookie: str | None = None,
    directories: int | None = None,
    compare: bool = True,
    partitions: int | None = None,
) -> LoadResult:
    """Make `out` the index of a bookie of a dump, as `bkstore.offline.load.load`, with Spark.

    `dump` and `out` lie on storage that the driver and all executors share under one path.
    `partitions` is into how many key ranges entries are cut (default: one for each core, and
    for each 4 million rows). A task that fails, and an executor that goes, are Spark's to
    repeat. Raises as the other, and `BkstoreError` in one line for what Spark itself reports.
    """
    if find_spec("pandas") is None:  # which mapInArrow asks for
        raise MissingDependency.of("pandas", "spark", "a bulk load with Spark")
    optional(whole(1, 2**31 - 1))("partitions", partitions)
    only_path(out, "an index")
    return local.load(
        DumpFolder(dump).absolute(),
        Path(out).absolute(),
        to,
        bookie=bookie,
        directories=directories,
        compare=compare,
        engine=SparkEngine(spark, partitions),
    )


class SparkEngine:
    """Writes and compares the rows of a load with Spark."""

    def __init__(self, spark: SparkSession, partitions: int | None = None) -> None:
        self._spark = spark
        self._partitions: int | None = optional(whole(1, 2**31 - 1))("partitions", partitions)

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Have the rows sorted and written; return the pieces of the attempts that counted."""
        files = declared(job.source)
        others = [file for each in files for file in each.others]
        frames = []
        with spark_errors("the bulk load"):
            if any(each.ready for each in files):
                frames.append(self._read_and_written(job))
            if others:
                rest = replace(job.source, files=tuple(others))
                frames.append(self._sorted_and_written(job, rest))
            found = [row for frame in frames for row in frame.collect()]
        made = [TableFile(*row[:5]) for row in found]
        return made, sum(row.duplicates for row in found)

    def _read_and_written(self, job: LoadJob) -> DataFrame:
        """Return the pieces of files that are sorted, which executors read themselves."""
        source, rows = job.source, self._task_rows(job.source)
        tasks = task_table(self._spark.newSession(), ordered_tasks(source, rows), rows)
        reader = ReadTasks(replace(source, files=(), ledgers=()))
        return tasks.mapInArrow(self.task(job.to, str(job.work / "ready"), reader), MESSAGE)

    def _task_rows(self, source: LoadSource) -> int:
        """Return how many rows a task should read of files that are sorted."""
        if self._partitions is None:
            return task_rows(self._spark, source.rows, _PIECE_ROWS)
        return max(-(-source.rows // self._partitions), 1)

    def _sorted_and_written(self, job: LoadJob, source: LoadSource) -> DataFrame:
        """Return the pieces of files in any order, which Spark reads and sorts."""
        rows = self._entries(source)
        by = self._order(rows)
        whole = by[:3] if job.to == "idx" else by[:4]  # one file, one task
        cut = rows.repartitionByRange(self._count(source), *whole)
        ordered = cut.sortWithinPartitions(*by).select(*_KEY, "location")
        return ordered.mapInArrow(self.task(job.to, str(job.work / "spark"), SortedRows()), MESSAGE)

    def task(self, to: str, folder: str, rows: SortedRows | ReadTasks) -> WritePieces:
        """Return what each task runs."""
        return WritePieces(to, folder, rows)

    def _count(self, source: LoadSource) -> int:
        if self._partitions is not None:
            return self._partitions
        cores = self._spark.sparkContext.defaultParallelism
        most = -(-source.rows // _LEAST_ROWS)
        return max(min(max(cores, -(-source.rows // _PIECE_ROWS)), most), 1)

    def _order(self, rows: DataFrame) -> list[Column]:
        from pyspark.sql import functions as f

        flip = f.lit(_FLIP)
        scope, ledger = (rows[name].bitwiseXOR(flip) for name in ("scope_id", "ledger_id"))
        return [rows["home"], scope, ledger, rows["entry_id"], rows["location"]]

    def _entries(self, source: LoadSource) -> DataFrame:
        """Return the bookie's rows as (home, scope, ledger, entry, location), checked."""
        from pyspark.sql import functions as f

        if needs_workers(source.files):
            rows = task_rows(self._spark, source.rows)
            frame = stored(self._spark.newSession(), source.files, rows, _READ)
        elif source.entries:
            frame = self._spark.read.parquet(*source.entries)
        else:
            frame = self._spark.createDataFrame([], _COLUMNS)
        if not source.pure:
            frame = frame.where(frame["bookie"] == source.bookie)
        odd = _odd_rows(frame, source)
        shown = [f.coalesce(frame[name].cast("string"), f.lit("null")) for name in _CHECKED]
        texts = (part for name, text in zip(_CHECKED, shown) for part in (f.lit(f" {name} "), text))
        reason = f.concat(f.lit(f"{RAISED}bookie {source.bookie}"), *texts)
        location = f.shiftleft(frame["log_id"], 32).bitwiseOR(frame["position"])
        return frame.select(
            _home(frame, source.directories).alias("home"),
            "scope_id",
            "ledger_id",
            "entry_id",
            f.when(odd, f.raise_error(reason).cast("bigint")).otherwise(location).alias("location"),
        )

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Have tasks read the files, and the index beside them; join rows of files in any order."""
        with spark_errors("comparing the index with the dump"):
            if any(each.others for each in declared(job.source)):
                return self._joined(job, data)
            return self._read_and_compared(job, index, data)

    def _read_and_compared(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        source, rows = job.source, self._task_rows(job.source)
        ledgers = index.ledgers() if job.to == "idx" else []
        ranges = compared_ranges(source, rows, ledgers)
        tasks = task_table(self._spark.newSession(), ranges, rows)
        compares = CompareRanges(replace(source, files=(), ledgers=()), job.to, data)
        return sum(int(row.rows) for row in tasks.mapInArrow(compares, COMPARED).collect())

    def _joined(self, job: LoadJob, data: Path) -> int:
        """Join the dump's rows with those of the index as it lies there, read by Spark too."""
        from pyspark.sql import functions as f

        register(self._spark)
        keys, parts = _KEY[1:], max(self._count(job.source), job.source.rows // _JOINED_ROWS)
        rows = self._entries(job.source).repartition(parts, *keys)
        expected = rows.groupBy(*keys).agg(f.max("location").alias("expected"))
        entries = self._spark.read.format("bookie").load(str(data))
        place = f.shiftleft(entries["log_id"], 32).bitwiseOR(entries["position"])
        found = entries.select(*keys, place.alias("found")).repartition(parts, *keys)
        joined = expected.join(found, list(keys), "full_outer")
        differs = ~joined["expected"].eqNullSafe(joined["found"])
        row = joined.agg(
            f.count("*").alias("rows"),
            f.min(f.when(differs, f.struct(*keys, "expected", "found"))).alias("odd"),
        ).collect()[0]
        if row.odd is not None:
            raise CorruptionError(data, None, f"differs from the dump: {row.odd.asDict()}")
        return int(row.rows)


_READ = Schema("entries", tuple(c for c in ENTRIES.columns if c.name in ENTRY_COLUMNS))
_COLUMNS = (
    "bookie string, dir_index int, scope_id bigint, ledger_id bigint, entry_id bigint, "
    "log_id bigint, position bigint"
)
_CHECKED = ("dir_index", "scope_id", "ledger_id", "entry_id", "log_id", "position")


def _home(frame: DataFrame, directories: int) -> Any:
    """Return the number of a ledger's directory: its unsigned id modulo how many there are."""
    from pyspark.sql import functions as f

    if directories == 1:
        return f.lit(0)
    half = f.shiftrightunsigned(frame["ledger_id"], 1)
    bit = frame["ledger_id"].bitwiseAND(f.lit(1))
    return ((half % directories * 2 + bit) % directories).cast("int")


def _odd_rows(frame: DataFrame, source: LoadSource) -> Any:
    """Return the condition of rows that no index has; the rules are `offline.load.dump_rows`'s."""
    from pyspark.sql import functions as f

    _, scope, ledger, entry, log, position = (frame[name] for name in _CHECKED)
    odd = (scope == 0) & (ledger < 0)
    odd |= (entry < 0) | (entry > MAX_ENTRY_ID) | (log < 0) | (log > MAX_LOG_ID)
    odd |= (position < 0) | (position >= 1 << 32) | ((log == 0) & (position == 0))
    if source.layout == "rocksdb":
        odd |= frame["dir_index"] != _home(frame, source.directories)
    for name in _CHECKED:
        odd |= frame[name].isNull()
    return f.coalesce(odd, f.lit(True))
