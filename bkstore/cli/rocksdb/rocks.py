"""bkstore rocks: the files, rows and logs of RocksDB databases, read without RocksDB."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.cli.terminal.output_options import add_output, describe_column_problem, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_show_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    report_findings,
)
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.index.api import Finding
from bkstore.tables import ROCKS_FILES, ROCKS_ROWS, Schema, Table

if TYPE_CHECKING:
    from bkstore.cli.rocksdb.database_choice import ChosenDatabase

_ROWS_PER_TABLE = 1 << 12
_Row = tuple[Any, ...]


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add = parser.add_argument
    add("--database", metavar="NAME", help="only this one: locations, ledgers, locations-128, ...")
    views = parser.add_mutually_exclusive_group()
    views.add_argument(
        "--files",
        action="store_true",
        help="the files: tables by level, logs, manifest, and what no longer counts (default)",
    )
    views.add_argument(
        "--log",
        metavar="FILE",
        nargs="?",
        const="",
        help="the rows of the write-ahead logs that are in no table yet, or of this log",
    )
    add_show_keys(parser)
    add_output(parser, None)
    parser.checks += (_check_columns,)


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    problem = describe_column_problem(args.columns or [], _chosen_view(args).schema.names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")


class _View(NamedTuple):
    """What is shown: a schema, and the rows of one database, with findings added to it."""

    schema: Schema
    rows: Callable[[ChosenDatabase, argparse.Namespace], Iterator[_Row]]


def _chosen_view(args: argparse.Namespace) -> _View:
    if args.log is not None:
        return _View(ROCKS_ROWS, _log_rows)
    return _View(ROCKS_FILES, _file_rows)


def run(args: argparse.Namespace) -> int:
    """Print the chosen view of each database; the exit code is 1 if there are findings."""
    from bkstore.cli.rocksdb.database_choice import open_databases

    view = _chosen_view(args)
    with open_databases(args) as (databases, bookie):
        if args.log:
            _check_log_name(databases, args.log)
        tables = check_unchanged_at_end(_tables(view, databases, args), bookie)
        write_output(args, view.schema, tables, private=args.show_keys)
    return report_findings(_findings(databases))


def _tables(
    view: _View, databases: list[ChosenDatabase], args: argparse.Namespace
) -> Iterator[Table]:
    rows = (row for database in databases for row in view.rows(database, args))
    yield from tables_of_rows(view.schema, rows, _ROWS_PER_TABLE)


def _findings(databases: list[ChosenDatabase]) -> Iterator[Finding]:
    for database in databases:
        yield from database.files.findings


def _file_rows(database: ChosenDatabase, _args: argparse.Namespace) -> Iterator[_Row]:
    from bkstore.index.rocks.inspection.row_tables import file_cells

    for file in database.files.files():
        yield file_cells(database.name, database.dir_index, file)


def _log_rows(database: ChosenDatabase, args: argparse.Namespace) -> Iterator[_Row]:
    """Yield the rows of the needed logs, or of the one that was named."""
    from bkstore.index.rocks.inspection.log_rows import TORN_TAIL
    from bkstore.index.rocks.inspection.row_tables import RowSource, iterate_rows, row_cells
    from bkstore.index.rocks.log_file import FramedLogReader

    for path in _chosen_logs(database, args.log):
        source = RowSource(database.name, database.dir_index, path.name)
        reader = FramedLogReader(path)
        try:
            for row in iterate_rows(reader.rows()):
                yield row_cells(source, row, args.show_keys)
        except (CorruptionError, UnsupportedLayout) as error:
            database.files.findings.append(Finding.of(error))
        if reader.torn_offset is not None and not args.live:
            finding = Finding("oddity", TORN_TAIL, str(path), reader.torn_offset)
            database.files.findings.append(finding)


def _chosen_logs(database: ChosenDatabase, file_name: str) -> list[Path]:
    """Return the needed logs, or the one of the name given, if it is here."""
    if not file_name:
        return database.files.logs()
    path = database.files.path / file_name
    return [path] if path.is_file() else []


def _check_log_name(databases: list[ChosenDatabase], file_name: str) -> None:
    """Raise `InvalidArgument` if no database has a write-ahead log of that name."""
    is_name = file_name.removesuffix(".log").isdecimal() and file_name.endswith(".log")
    if not is_name or not any(_chosen_logs(database, file_name) for database in databases):
        paths = ", ".join(str(database.files.path) for database in databases)
        raise InvalidArgument(f"--log {file_name[:60]}: no such write-ahead log in {paths}")
