"""The local engine: DuckDB for SQL and sorting, kernels over its Arrow batches, no Java.

DuckDB works within `memory` and spills to a temp directory; kernels take batches as they come.
Where files are sorted and say so, neither is needed: they are read one after the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.arguments import optional, whole
from bkstore.errors import BkstoreError, MissingDependency, SystemRefused
from bkstore.files.os_errors import os_error, unreadable
from bkstore.files.scratch import scratch_directory
from bkstore.offline.analyses.catalog import Analysis, Feed, Inputs, Pass
from bkstore.offline.analyses.engine_steps import checked, finish, order_terms, tables_in
from bkstore.offline.analyses.sorted_files import Direct, Planned
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.places import remote_dataset
from bkstore.offline.reading.read_tasks import loose_tasks, split_repeating
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

MACROS = (
    "create macro bk_div(a, b) as a // b",
    "create macro bk_unsigned(a) as xor(a, (-9223372036854775808)::bigint)",
    "create macro bk_qualified(a, b) as"
    " lower(concat(lpad(hex(a), 16, '0'), lpad(hex(b), 16, '0')))",
)
"""The functions of `sql`, in DuckDB's words."""

_QUOTED = re.compile('"(/[^"]*)"')
_BATCH = 1 << 16
_ALL = 1 << 62
"""Rows of a task here: as many as it may have."""


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
        self._threads = threads != 1
        self._scratch = scratch

    def run(self, analysis: Analysis, inputs: Inputs) -> pa.Table:
        """Return the analysis's table, of the declared schema and in the declared order.

        Raises `InvalidArgument` where the inputs lack what it needs, `BkstoreError` where
        DuckDB fails (a full disk, say).
        """
        checked(analysis, inputs)
        made = analysis.work(inputs)
        if isinstance(made, str):
            with self._connected(inputs, made) as con:
                table = con.sql(made).to_arrow_table()
        else:
            table = self._passed(analysis, made, inputs)
        return finish(table, analysis, inputs.options)

    def _passed(self, analysis: Analysis, made: Pass, inputs: Inputs) -> pa.Table:
        """Return what a kernel makes: of sorted files as they lie, of other rows by DuckDB."""
        import pyarrow as pa

        other = inputs.other if analysis.needs_other else None
        planned = made.direct.plan(inputs.dump, other, inputs.metadata, _ALL)
        parts: list[pa.RecordBatch] = []
        if planned is not None:
            for task in planned.tasks:
                parts += made.direct.answers(task, threads=self._threads)
        if planned is None or planned.others:
            rows = _Remembering(self._before(made, planned))
            with rows.telling(), self._connected(inputs, made.feed.text or "") as con:
                source = made.feed.text or _others(con, made, planned, inputs, rows)
                parts += made.kernel(_read(con, _sorted(source, made.feed)))
        return pa.Table.from_batches(parts, analysis.schema.to_arrow())

    def _before(self, made: Pass, planned: Planned | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files that are not sorted, condensed, if they can be."""
        if made.before is not None and planned is not None:
            for task in loose_tasks(planned.others, _ALL):
                yield from made.before.answers(task, threads=self._threads)

    @contextmanager
    def _connected(self, inputs: Inputs, text: str) -> Iterator[Any]:
        """Yield a connection that knows the functions, and the tables that a text reads."""
        with scratch_directory("local", self._scratch) as scratch:
            settings = {**self._settings, "temp_directory": str(scratch)}
            try:
                with self._duckdb.connect(":memory:", config=settings) as con:
                    for macro in MACROS:
                        con.execute(macro)
                    _declare(con, inputs, text)
                    yield con
            except self._duckdb.Error as error:
                raise _failure(str(error).splitlines()[0], scratch) from error


def _failure(line: str, scratch: Path) -> BkstoreError:
    """Return the error for a line of DuckDB's; it names the file that the system refused."""
    refused, named = os_error(line), _QUOTED.search(line)
    if refused.errno is None or named is None:
        return BkstoreError(f"the analysis failed: {line}")
    error = OSError(refused.errno, os.strerror(refused.errno))
    if Path(named[1]).is_relative_to(scratch):
        return SystemRefused(named[1], error)
    return unreadable(error, named[1])


class _Remembering:
    """Batches that DuckDB takes, and what stopped them: DuckDB tells only that something did."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        try:
            yield from self._batches
        except Exception as error:
            self._error = error
            raise

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise what stopped the batches, instead of what came of it."""
        try:
            yield
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise


def _others(
    con: Any, made: Pass, planned: Planned | None, inputs: Inputs, rows: _Remembering
) -> str:
    """Return the text of the rows of files that are not sorted; `rows` of them, if condensed."""
    import pyarrow as pa

    assert isinstance(made.direct, Direct)
    assert planned is not None
    if made.before is None:
        inputs.dump.check(made.direct.table)
        _name_rows(con, "others", planned.others, inputs.dump.is_remote)
        return f"select bookie, {', '.join(made.direct.columns)} from others"  # noqa: S608
    con.register("others", pa.RecordBatchReader.from_batches(GROUPS.to_arrow(), rows))
    return "select * from others"


def _declare(con: Any, inputs: Inputs, text: str) -> None:
    for mark, dump, names in zip(("", "other_"), (inputs.dump, inputs.other), tables_in(text)):
        if dump is None:
            continue
        dump.check(*names)
        for name in names:
            _declare_table(con, f"{mark}{name}", dump.files[name], dump.is_remote)
        con.register(f"{mark}bookies", dump.bookie_rows())
    if inputs.metadata is not None:
        con.register("metadata", inputs.metadata.table)


def _declare_table(con: Any, name: str, files: Sequence[DumpFile], is_remote: bool) -> None:
    """Make the view of a table, a set of rows: those of files that may repeat some come once."""
    once, repeating = split_repeating(files)
    if not repeating:
        _name_rows(con, name, once, is_remote)
        return
    _name_rows(con, f"{name}_repeated", repeating, is_remote)
    text = f'select distinct * from "{name}_repeated"'  # noqa: S608
    if once:
        _name_rows(con, f"{name}_once", once, is_remote)
        text += f' union all select * from "{name}_once"'  # noqa: S608
    con.execute(f'create view "{name}" as {text}')


def _name_rows(con: Any, name: str, files: Sequence[DumpFile], is_remote: bool) -> None:
    paths = [file.path for file in files]
    if is_remote:
        con.register(name, remote_dataset(paths))
        return
    listed = ", ".join("'" + escape(path).replace("'", "''") + "'" for path in paths)
    con.execute(f'create view "{name}" as select * from read_parquet([{listed}])')  # noqa: S608


def _sorted(text: str, feed: Feed) -> str:
    terms = ", ".join(order_terms((*feed.keys, *feed.order)))
    return f"select * from ({text}) fed order by {terms}"  # noqa: S608


def _read(con: Any, text: str) -> Iterator[pa.RecordBatch]:
    return iter(con.sql(text).to_arrow_reader(_BATCH))
