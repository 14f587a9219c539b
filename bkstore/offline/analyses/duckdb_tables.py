"""The files of a dump as DuckDB reads them: functions and table expressions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.os_errors import parse_rocksdb_error, read_error
from bkstore.offline.reading.disjoint_files import split_repeating
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.file_locations import remote_dataset

if TYPE_CHECKING:
    import duckdb

_QUOTED_PATH = re.compile('"(/[^"]*)"')
_FUNCTIONS = (
    "create macro bk_div(a, b) as a // b",
    "create macro bk_unsigned(a) as xor(a, (-9223372036854775808)::bigint)",
    "create macro bk_qualified(a, b) as"
    " lower(concat(lpad(hex(a), 16, '0'), lpad(hex(b), 16, '0')))",
)
"""The functions that the texts in `sql` call, defined for DuckDB."""


def open_duckdb(settings: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return a new database in memory that has the functions of `sql`'s texts."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(settings))
    for statement in _FUNCTIONS:
        connection.execute(statement)
    return connection


def refusal_of_system(line: str, spill_path: Path) -> BkstoreError | None:
    """Return the error for a line of DuckDB's message that tells of a file that the system refused,
    one of its spills or one that it read; None for any other message."""
    # DuckDB quotes the system's error texts as RocksDB does.
    refusal, quoted_path = parse_rocksdb_error(line), _QUOTED_PATH.search(line)
    if refusal.errno is None or quoted_path is None:
        return None
    path, error = quoted_path[1], OSError(refusal.errno, os.strerror(refusal.errno))
    if Path(path).is_relative_to(spill_path):  # a file of ours, so no input is damaged
        return SystemRefused(path, error)
    return read_error(error, path)


def select_rows(connection: Any, label: str, files: Sequence[DumpFile], is_remote: bool) -> str:
    """Return the query for all rows of a table's files. Files that may repeat rows are read with
    `distinct`, the others without, which is faster. Files of a remote dump are registered with the
    connection, by a name with `label`."""
    distinct_files, repeating_files = split_repeating(files)
    queries = []
    if repeating_files:
        source = _make_sql_source(connection, f"{label} repeated", repeating_files, is_remote)
        queries.append(f"select distinct * from {source}")  # noqa: S608
    if distinct_files or not repeating_files:
        source = _make_sql_source(connection, label, distinct_files, is_remote)
        queries.append(f"select * from {source}")  # noqa: S608
    return " union all ".join(queries)


def _make_sql_source(
    connection: Any, label: str, files: Sequence[DumpFile], is_remote: bool
) -> str:
    """Return what a query can select from: the rows of these files."""
    paths = [file.path for file in files]
    if is_remote:
        connection.register(f"bkstore files of {label}", remote_dataset(paths))
        return f'"bkstore files of {label}"'
    # `read_parquet` takes glob patterns, so each path is escaped for that, then quoted for SQL.
    path_list = ", ".join("'" + escape(path).replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{path_list}])"
