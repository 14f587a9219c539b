"""``spark.read.format("bookie")``: bookie directories as they are, as tables.

A table is split into partitions as a dump is into pieces (`offline.dump.plan`): ranges of ledgers
of an index, index files, rows of entry logs. Filters on `bookie`, `scope_id` and `ledger_id` are
pushed down; rows that they exclude are skipped where possible. Options, clusters: `docs/spark.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.index.api import Finding
from bkstore.offline.dump.plan import BookiePlan, DumpSource, fingerprint, plan_bookie
from bkstore.spark.source.filters import Bounds
from bkstore.spark.source.options import SourceOptions, parse_options
from bkstore.spark.source.rows import TablePartition, has_ledgers, read_partition
from bkstore.tables import BOOKIE_FINDINGS, ENTRIES, ENTRY_LOGS, LOG_LEDGERS, Schema
from bkstore.tables.safe_text import escape_surrogates

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_SQL_TYPES = {"int64": "bigint", "int32": "int", "bool": "boolean"}
"""Spark's names of column types that differ from ours."""


class BookieSource(DataSource):
    """The data source `bookie`. Options: see `docs/spark.md`; invalid ones raise `InvalidArgument`.

    Paths may be patterns, and named: ``load(["/data/b*", "two=/other/b2"])``. A path that exists
    as written is not a pattern; a pattern that matches nothing raises `InvalidArgument`.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``bookie``."""
        return "bookie"

    def schema(self) -> str:
        """Return the table's columns as DDL; reads nothing."""
        return _schema_as_ddl(parse_options(self.options, paths=False).table)

    def reader(self, schema: StructType) -> BookieReader:
        """Return the reader, with the patterns expanded now, at the cost of their listings. Raises
        `InvalidArgument` for an invalid option, an unmatched pattern, another table's schema."""
        options = parse_options(self.options)
        if schema.fieldNames() != options.table.names:
            raise InvalidArgument(f"table {options.table.name} has columns {options.table.names}")
        return BookieReader(options)


def _schema_as_ddl(table: Schema) -> str:
    columns = ((c, _SQL_TYPES.get(c.kind, c.kind)) for c in table.columns)
    return ", ".join(f"`{c.name}` {kind}{'' if c.nullable else ' not null'}" for c, kind in columns)


class _Partition(InputPartition):
    """A partition: what `read_partition` takes."""

    def __init__(self, table_partition: TablePartition) -> None:
        super().__init__(table_partition)
        self.table_partition = table_partition


class BookieReader(DataSourceReader):
    """Plans and reads a query. Pickled between planning and reading, so it holds no files."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's
        """Apply the filters that this source supports to `bounds`, and yield the others."""
        has_ledger_ids = has_ledgers(self.options.table)
        for pushed_filter in filters:
            narrowed = self.bounds.with_filter(pushed_filter, has_ledger_ids)
            if narrowed is None:
                yield pushed_filter
            else:
                self.bounds = narrowed

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the selected bookies. Reads names, sizes, lists of ledgers.
        Raises the error of a bookie that cannot be opened, unless damage is skipped."""
        seen_ids: set[str] = set()
        partitions: list[InputPartition] = []
        for source in self.options.sources:
            if source.bookie_id is None or self.bounds.selects_bookie(source.bookie_id):
                partitions += map(_Partition, self._plan_bookie_partitions(source, seen_ids))
        return partitions or [_Partition(TablePartition(""))]  # without rows: Spark needs one

    def _plan_bookie_partitions(
        self, source: DumpSource, seen_ids: set[str]
    ) -> Iterator[TablePartition]:
        """Yield a bookie's partitions; add its id to `seen_ids`, raise if it is there already."""
        options, bookie_id = self.options, source.bookie_id
        try:
            with closing(source.open()) as bookie:
                bookie_id = bookie.bookie_id
                if bookie_id in seen_ids:
                    raise InvalidArgument(f"two bookies have the id {bookie_id!r}: give NAME=DIR")
                seen_ids.add(bookie_id)
                if self.bounds.selects_bookie(bookie_id):
                    # Lengths are a column of `entries` alone, and reading them may add findings.
                    with_lengths = options.length and options.table in (ENTRIES, BOOKIE_FINDINGS)
                    plan = plan_bookie(bookie, with_lengths, options.partition_rows)
                    yield from self._plan_table_partitions(plan)
        except InvalidArgument:
            raise
        except BkstoreError as error:
            # A bookie whose id is not known is called as in a dump, by its folder.
            bookie_id = bookie_id or escape_surrogates(Path(source.path).resolve().name)
            yield from self._plan_unread_bookie(bookie_id, error)

    def _plan_unread_bookie(self, bookie_id: str, error: BkstoreError) -> Iterator[TablePartition]:
        """Yield the finding of a bookie that cannot be opened or listed, or raise its error."""
        if self.options.table == BOOKIE_FINDINGS:
            if self.bounds.selects_bookie(bookie_id):
                finding = Finding.of(error)
                detail = f"bookie {bookie_id} was not read: {finding.detail}"
                yield TablePartition(bookie_id, findings=(replace(finding, detail=detail),))
        elif not self.options.skip_damage:
            raise error

    def _plan_table_partitions(self, plan: BookiePlan) -> Iterator[TablePartition]:
        """Yield a partition for each piece with rows of the table, and one for the findings."""
        table, kinds = self.options.table, {"index"}
        if table in (ENTRY_LOGS, LOG_LEDGERS):
            kinds = {"logs"}
        elif table == BOOKIE_FINDINGS:  # which come from reading all pieces
            kinds = {"index", "logs"}
            if plan.findings:
                yield TablePartition(plan.bookie_id, findings=tuple(plan.findings))
        for piece in plan.pieces:
            if piece.kind in kinds:
                narrowed = self.bounds.narrow_piece(piece)
                if narrowed:
                    pieces = tuple((part, fingerprint(part)) for part in narrowed)
                    yield TablePartition(plan.bookie_id, pieces)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows."""
        assert isinstance(partition, _Partition)
        part, options = partition.table_partition, self.options
        return read_partition(part, options.table, self.bounds, options.skip_damage)
