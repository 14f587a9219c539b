"""SQL over dumps: a DuckDB connection with the tables of a dump and its analyses as views."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.offline.analyses.catalog import ANALYSES, Analysis, Inputs
from bkstore.offline.analyses.duckdb_tables import open_duckdb, refusal_of_system, select_rows
from bkstore.offline.analyses.engine_steps import open_inputs
from bkstore.offline.analyses.local_engine import LocalEngine
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.analyses.pulsar_tables import PulsarMetadata
from bkstore.offline.reading.open_dump import Dump
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_DumpLike = Dump | str | os.PathLike[str]


def connect(
    dump: _DumpLike,
    metadata: Metadata | MetadataStore | str | os.PathLike[str] | None = None,
    *,
    attach: Mapping[str, _DumpLike] | None = None,
    memory: int = 1024,
    threads: int | None = None,
    pulsar: PulsarMetadata | str | os.PathLike[str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection in memory whose views are the tables of a dump and its analyses.

    Views: the tables of `docs/formats/dump.md`; `bookies`, those of the manifest; `metadata`, if
    ledger metadata are given; and each analysis, run when a query first reads it, its rows kept
    until the connection is closed. For each dump of `attach`, a schema of that name has its
    tables and analyses; `comparison` there is what changed from `dump` to that one. Functions:
    `bk_unsigned(id)` to sort ids as unsigned, `bk_qualified(scope_id, ledger_id)`. `pulsar` is a
    copy of Pulsar's metadata, which `leaked_ledgers` of `dump` needs. `memory`, in
    MiB, and `threads` are DuckDB's limits; it spills into the temporary directory.

    Raises `MissingDependency` without DuckDB, `InvalidArgument` for a name that is not an SQL name
    or a view's, and as `open_dump` and `read_metadata` do, also for a file that DuckDB cannot read.
    A query raises DuckDB's errors; for an analysis that fails or lacks metadata, with its message.
    Cost: the footers of all files are checked, some 0.3 ms each. The connection must not be used in
    two threads at once.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> from bkstore.offline.dump import dump
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     made = dump([f"{top}/b"], f"{top}/out")
    ...     with connect(f"{top}/out") as connection:
    ...         connection.sql("select ledger_id, entries, holes from holes").fetchall()
    [(7, 3, 1)]
    """
    session = SqlSession.open(
        dump, metadata, attach=attach, memory=memory, threads=threads, pulsar=pulsar
    )
    return session.connection


class SqlSession(NamedTuple):
    """A connection of `connect`, with what its errors are explained by."""

    connection: duckdb.DuckDBPyConnection
    analyses: list[LazyAnalysis]
    spill_path: Path

    @classmethod
    def open(
        cls,
        dump: _DumpLike,
        metadata: Metadata | MetadataStore | str | os.PathLike[str] | None = None,
        *,
        attach: Mapping[str, _DumpLike] | None = None,
        memory: int = 1024,
        threads: int | None = None,
        pulsar: PulsarMetadata | str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open the connection; raises as `connect` does."""
        engine = LocalEngine(memory, threads)
        inputs = open_inputs(dump, metadata, pulsar=pulsar)
        attached = {schema: open_inputs(other) for schema, other in (attach or {}).items()}
        _check_schema_names(attached)
        spill_path = Path(tempfile.gettempdir()) / f"bkstore-sql-{uuid.uuid4().hex}"
        connection = open_duckdb(engine.settings(spill_path))  # makes and removes that folder
        try:
            analyses = _create_views(connection, engine, "main", inputs)
            for schema, other in attached.items():
                connection.execute(f'create schema "{schema}"')
                other_inputs = replace(other, metadata=inputs.metadata)
                analyses += _create_views(connection, engine, schema, other_inputs, earlier=inputs)
        except BaseException as error:
            connection.close()
            if engine.is_duckdb_error(error):
                message = _one_line(error)
                refusal = refusal_of_system(message, spill_path)
                raise refusal or BkstoreError(f"the views cannot be made: {message}") from error
            raise
        return cls(connection, analyses, spill_path)

    def explain(self, error: Exception) -> BkstoreError:
        """Return the error to raise for one of DuckDB's: that of an analysis that failed, that of a
        file that the system refused, else `InvalidArgument` for the query."""
        for analysis in self.analyses:
            if isinstance(analysis.error, BkstoreError):
                return analysis.error
        message = _one_line(error)
        refusal = refusal_of_system(message, self.spill_path)
        return refusal or InvalidArgument(f"the query failed: {message}")


def _one_line(error: BaseException) -> str:
    """Return a message of DuckDB without the line that underlines a word of the query."""
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(word for line in lines if line.strip("^~ ") for word in line.split())


def _check_schema_names(schemas: Mapping[str, object]) -> None:
    for schema in schemas:
        if not schema.isidentifier() or schema.lower() in ("main", "temp", "system", "pg_catalog"):
            raise InvalidArgument(f"{schema!r} cannot be the name of an attached dump")


def _create_views(
    connection: Any, engine: LocalEngine, schema: str, inputs: Inputs, earlier: Inputs | None = None
) -> list[LazyAnalysis]:
    """Create the views of one dump in a schema; return its analyses. With `earlier`, `comparison`
    is from that dump to this one."""
    dump = inputs.dump
    dump.check(*DUMP_TABLES)
    for table in DUMP_TABLES:
        query = select_rows(connection, f"{schema}.{table}", dump.files[table], dump.is_remote)
        connection.execute(f'create view "{schema}"."{table}" as {query}')
    registered: dict[str, Any] = {"bookies": dump.bookie_rows()}
    if inputs.metadata is not None:
        registered["metadata"] = inputs.metadata.table
    lazy = []
    for analysis in ANALYSES.values():
        analysis_inputs = inputs
        if earlier is not None and analysis.needs_other:
            analysis_inputs = replace(earlier, other=dump)
        lazy.append(LazyAnalysis(engine, analysis, analysis_inputs))
        registered[analysis.name] = lazy[-1]
    for view, source in registered.items():
        # DuckDB registers objects for the whole connection; the view puts one into its schema.
        source_name = f"bkstore {schema}.{view}"
        connection.register(source_name, source)
        connection.execute(f'create view "{schema}"."{view}" as select * from "{source_name}"')  # noqa: S608
    return lazy


class LazyAnalysis:
    """An analysis that DuckDB reads as a table; it runs when its rows are first asked for, not for
    its columns. `error` is the exception that it last failed with."""

    def __init__(self, engine: LocalEngine, analysis: Analysis, inputs: Inputs) -> None:
        self._engine = engine
        self._analysis = analysis
        self._inputs = inputs
        self._table: pa.Table | None = None
        self.error: Exception | None = None

    def __arrow_c_schema__(self) -> object:
        """The columns, by the Arrow PyCapsule interface."""
        return self._analysis.schema.to_arrow().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows, by the Arrow PyCapsule interface."""
        if self._table is None:
            try:
                self._table = self._engine.run(self._analysis, self._inputs)
            except Exception as error:
                self.error = error
                raise
        return self._table.__arrow_c_stream__(requested_schema)
