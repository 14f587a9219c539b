"""``spark.read.format("bookie")``: bookie directories as they are, as tables.

`register` makes it known to a session. A table is cut into partitions as a dump is into pieces
(`offline.dump_plan`): ranges of ledgers of an index, index files, rows of entry logs. Filters on
`bookie`, `scope_id` and `ledger_id` are done here, and what they leave out is not read. Options
and how to ship this to a cluster: `docs/spark.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.index.api import Finding
from bkstore.offline.dump.plan import BookiePlan, DumpSource, fingerprint, plan_bookie
from bkstore.spark.source.filters import Bounds, interval
from bkstore.spark.source.options import SourceOptions, parse_options
from bkstore.spark.source.rows import Part, has_ledgers, read_part
from bkstore.tables import BOOKIE_FINDINGS, ENTRIES, ENTRY_LOGS, LOG_LEDGERS, Schema
from bkstore.tables.safe_text import encodable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_SQL = {
    "int64": "bigint",
    "int32": "int",
    "string": "string",
    "bool": "boolean",
    "binary": "binary",
}


class BookieSource(DataSource):
    """The data source `bookie`. Options: see `docs/spark.md`; a wrong one is `InvalidArgument`.

    Paths may be patterns, and named: ``load(["/data/b*", "two=/other/b2"])``. A path that is
    there as written is no pattern; a pattern that matches nothing is `InvalidArgument`.
    """

    @classmethod
    def name(cls) -> str:
        """Return ``bookie``."""
        return "bookie"

    def schema(self) -> str:
        """Return the table's columns as DDL; reads nothing."""
        return _ddl(parse_options(self.options, paths=False).table)

    def reader(self, schema: StructType) -> BookieReader:
        """Return the reader, for what paths and patterns stand for now.

        Raises `InvalidArgument` for a wrong option, a pattern that matches nothing, and a schema
        that is not the table's. Cost: the listings that patterns need.
        """
        options = parse_options(self.options)
        if schema.fieldNames() != options.table.names:
            raise InvalidArgument(f"table {options.table.name} has columns {options.table.names}")
        return BookieReader(options)


def _ddl(table: Schema) -> str:
    return ", ".join(
        f"`{c.name}` {_SQL[c.kind]}{'' if c.nullable else ' not null'}" for c in table.columns
    )


class _Partition(InputPartition):
    """A partition: what `read_part` takes."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class BookieReader(DataSourceReader):
    """Plans and reads a query. Pickled between planning and reading, so it holds no files."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's
        """Take the filters that are done here, and yield the others."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        value: Any = getattr(one, "value", None)
        kind, column = type(one).__name__, ".".join(attribute)
        if column == "bookie" and kind in ("EqualTo", "In"):
            self.bounds = self.bounds.of_bookies(value if kind == "In" else [value])
            return True
        if column not in ("scope_id", "ledger_id") or not has_ledgers(self.options.table):
            return False
        wanted = interval(kind, value)
        if wanted is not None:
            self.bounds = self.bounds.narrowed(column, wanted)
        return wanted is not None

    def partitions(self) -> Sequence[InputPartition]:
        """Open each bookie that is wanted, and cut it up. Reads names, sizes, lists of ledgers.

        Raises the error of a bookie that cannot be opened, unless damage is passed over.
        """
        seen: set[str] = set()
        found: list[InputPartition] = []
        for source in self.options.sources:
            if source.bookie_id is None or self.bounds.wants(source.bookie_id):
                found += [_Partition(part) for part in self._bookie(source, seen)]
        return found or [_Partition(Part(""))]

    def _bookie(self, source: DumpSource, seen: set[str]) -> Iterator[Part]:
        options, name = self.options, source.bookie_id
        try:
            with closing(source.open()) as bookie:
                name = bookie.bookie_id
                if name in seen:
                    raise InvalidArgument(f"two bookies are called {name!r}: give NAME=DIR")
                seen.add(name)
                if self.bounds.wants(name):
                    length = options.length and options.table in (ENTRIES, BOOKIE_FINDINGS)
                    yield from self._parts(plan_bookie(bookie, length, options.partition_rows))
        except InvalidArgument:
            raise
        except BkstoreError as error:
            name = name or encodable(Path(source.path).resolve().name)  # as a dump calls it
            yield from self._unread(name, error)

    def _unread(self, name: str, error: BkstoreError) -> Iterator[Part]:
        """Yield the finding of a bookie that cannot be opened or listed, or raise its error."""
        if self.options.table == BOOKIE_FINDINGS:
            if self.bounds.wants(name):
                found = Finding.of(error)
                detail = f"bookie {name} was not read: {found.detail}"
                yield Part(name, (), (replace(found, detail=detail),))
        elif not self.options.skip_damage:
            raise error

    def _parts(self, plan: BookiePlan) -> Iterator[Part]:
        table = self.options.table
        if table == BOOKIE_FINDINGS and plan.findings:
            yield Part(plan.bookie_id, (), tuple(plan.findings))
        kinds = {ENTRY_LOGS.name: ["logs"], LOG_LEDGERS.name: ["logs"]}.get(table.name, ["index"])
        if table == BOOKIE_FINDINGS:
            kinds = ["index", "logs"]
        for piece in plan.pieces:
            if piece.kind in kinds:
                cut = self.bounds.cut(piece)
                if cut:
                    yield Part(plan.bookie_id, tuple((one, fingerprint(one)) for one in cut))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows."""
        assert isinstance(partition, _Partition)
        options = self.options
        return read_part(partition.part, options.table, self.bounds, options.skip_damage)
