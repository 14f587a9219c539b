"""The local engine: DuckDB for SQL and sorting, kernels over its Arrow batches, no Java.

DuckDB works within `memory` and spills to a temp directory; kernels take batches as they come.
`sequences` needs neither: the files of a dump are sorted, and are read one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bkstore.arguments import optional, whole
from bkstore.errors import BkstoreError, MissingDependency
from bkstore.files.opening import check_regular
from bkstore.files.os_errors import readable
from bkstore.files.scratch import scratch_directory
from bkstore.offline.analyses.catalog import Analysis, Feed, Inputs, Pass
from bkstore.offline.analyses.dump_files import Dump, DumpFile
from bkstore.offline.analyses.engine_steps import checked, finish, order_terms
from bkstore.offline.analyses.kernels import Condense, Sequences
from bkstore.offline.dump import TABLES
from bkstore.tables import GROUPS, SEQUENCES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MACROS", "LocalEngine"]

MACROS = (
    "create macro bk_div(a, b) as a // b",
    "create macro bk_unsigned(a) as xor(a, (-9223372036854775808)::bigint)",
    "create macro bk_qualified(a, b) as"
    " lower(concat(lpad(hex(a), 16, '0'), lpad(hex(b), 16, '0')))",
)
"""The functions of `sql`, in DuckDB's words."""

_BATCH = 1 << 16
_FILE_BATCH = 1 << 18
_OTHER = ("groups", "ledgers")


class LocalEngine:
    """Runs analyses in this process.

    `memory` is what DuckDB may use, in MiB (more goes to disk, below `scratch`), `threads` how
    many it works with (default: the CPUs). Raises `MissingDependency` without DuckDB. Threads:
    one `run` at a time.
    """

    def __init__(
        self, memory: int = 1024, threads: int | None = None, scratch: str | None = None
    ) -> None:
        memory = whole(64)("memory", memory)
        threads = optional(whole(1, 1 << 12))("threads", threads)
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependency.of("duckdb", "local", "analyses without Spark") from error
        self._duckdb = duckdb
        self._settings: dict[str, Any] = {"memory_limit": f"{memory}MiB"}
        if threads is not None:
            self._settings["threads"] = threads
        self._scratch = scratch

    def run(self, analysis: Analysis, inputs: Inputs) -> pa.Table:
        """Return the analysis's table, of the declared schema and in the declared order.

        Raises `InvalidArgument` where the inputs lack what it needs, `BkstoreError` where
        DuckDB fails (a full disk, say).
        """
        checked(analysis, inputs)
        made = analysis.work(inputs)
        table = None
        if isinstance(made, Pass) and made.before is not None:
            table = _sequences(inputs.dump)
        if table is None:
            with self._connected(inputs) as con:
                if isinstance(made, str):
                    table = con.sql(made).to_arrow_table()
                else:
                    table = _fed(con, analysis, made)
        return finish(table, analysis, inputs.options)

    @contextmanager
    def _connected(self, inputs: Inputs) -> Iterator[Any]:
        """Yield a connection that knows the tables and the functions."""
        with scratch_directory("local", self._scratch) as scratch:
            settings = {**self._settings, "temp_directory": str(scratch)}
            try:
                with self._duckdb.connect(":memory:", config=settings) as con:
                    for macro in MACROS:
                        con.execute(macro)
                    _declare(con, inputs)
                    yield con
            except self._duckdb.Error as error:
                line = str(error).splitlines()[0]
                raise BkstoreError(f"the analysis failed: {line}") from error


def _declare(con: Any, inputs: Inputs) -> None:
    for schema in TABLES:
        _view(con, schema.name, inputs.dump, schema.name)
    con.register("bookies", inputs.dump.bookie_rows())
    if inputs.metadata is not None:
        con.register("metadata", inputs.metadata.table)
    if inputs.other is not None:
        for name in _OTHER:
            _view(con, f"other_{name}", inputs.other, name)
        con.register("other_bookies", inputs.other.bookie_rows())


def _view(con: Any, name: str, dump: Dump, table: str) -> None:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in dump.paths(table))
    con.execute(f'create view "{name}" as select * from read_parquet([{listed}])')  # noqa: S608


def _fed(con: Any, analysis: Analysis, made: Pass) -> pa.Table:
    """Return what a kernel makes of its feed, sorted by DuckDB."""
    import pyarrow as pa

    source = made.feed.text
    if made.before is not None:
        batches = made.before(_read(con, source))
        con.register("between", pa.Table.from_batches(batches, GROUPS.to_arrow()))
        source = "select * from between"
    rows = _read(con, _sorted(source, made.feed))
    return pa.Table.from_batches(made.kernel(rows), analysis.schema.to_arrow())


def _sorted(text: str, feed: Feed) -> str:
    terms = ", ".join(order_terms((*feed.keys, *feed.order)))
    return f"select * from ({text}) fed order by {terms}"  # noqa: S608


def _read(con: Any, text: str) -> Iterator[pa.RecordBatch]:
    return iter(con.sql(text).to_arrow_reader(_BATCH))


# -- sequences, straight from the files


def _sequences(dump: Dump) -> pa.Table | None:
    """Return `sequences` from files that are read once, in their order.

    None where they are not as bkstore writes them (a ledger in several places, a file of
    several bookies): then they have to be sorted.
    """
    import pyarrow as pa

    parts: list[Any] = []
    for file in dump.files["entries"]:
        if not file.pure:
            return None
        parts += Sequences()(Condense(file.bookie)(_entry_batches(file)))
    table = pa.Table.from_batches(parts, SEQUENCES.to_arrow())
    names = table.select(["bookie", "qualified_name"])
    distinct = names.group_by(names.column_names).aggregate([])
    return table if distinct.num_rows == table.num_rows else None


def _entry_batches(file: DumpFile) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    columns = ["scope_id", "ledger_id", "entry_id"]
    with readable(file.path):
        check_regular(file.path)
    with readable(file.path), pq.ParquetFile(file.path) as opened:
        yield from opened.iter_batches(_FILE_BATCH, columns=columns)
