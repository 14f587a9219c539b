"""bkstore rocks: the files, rows and logs of RocksDB databases, read without RocksDB."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.cli.terminal.ledger_options import add_ledger_options, only_ledger_from_args
from bkstore.cli.terminal.output_options import add_output, describe_column_problem, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_show_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    report_findings,
)
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.errors import InvalidArgument
from bkstore.index.api import Finding
from bkstore.tables import ROCKS_FILES, ROCKS_PROPERTIES, ROCKS_ROWS, Schema, Table

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
    _add_file_view(views, "--properties", "what all table files state about themselves, or FILE")
    _add_file_view(views, "--rows", "the live rows by key; with FILE all rows of that table or log")
    _add_file_view(views, "--log", "all rows of the logs that are in no table yet, or of FILE")
    add_ledger_options(parser, "with --rows and --log: only rows of this ledger")
    add_show_keys(parser)
    add_output(parser, None)
    parser.checks += (_check_columns,)


def _add_file_view(views: argparse._MutuallyExclusiveGroup, option: str, description: str) -> None:
    views.add_argument(option, metavar="FILE", nargs="?", const="", help=description)


class _View(NamedTuple):
    """What is shown: the option and its FILE ("" without), a schema, and the suffixes of FILE."""

    option: str
    file_name: str
    schema: Schema
    suffixes: tuple[str, ...]


def _chosen_view(args: argparse.Namespace) -> _View:
    """Return the view that the options choose: its schema, and the files it can be of."""
    if args.properties is not None:
        return _View("--properties", args.properties, ROCKS_PROPERTIES, (".sst",))
    if args.rows is not None:
        return _View("--rows", args.rows, ROCKS_ROWS, (".sst", ".log"))
    if args.log is not None:
        return _View("--log", args.log, ROCKS_ROWS, (".log",))
    return _View("--files", "", ROCKS_FILES, ())


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    view = _chosen_view(args)
    problem = describe_column_problem(args.columns or [], view.schema.names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")
    if view.schema is not ROCKS_ROWS and (args.ledger_id or args.ledger_qualified_name):
        parser.error(f"a ledger cannot be chosen with {view.option}, only with --rows and --log")


def run(args: argparse.Namespace) -> int:
    """Print the chosen view of each database; the exit code is 1 if there are findings."""
    from bkstore.cli.rocksdb.database_choice import open_databases
    from bkstore.cli.rocksdb.view_rows import ViewOptions, view_rows

    view = _chosen_view(args)
    options = ViewOptions(view.file_name, only_ledger_from_args(args), args.show_keys, args.live)
    with open_databases(args) as (databases, bookie):
        if view.file_name:
            databases = _databases_with(view, databases)
        rows = view_rows[view.option]
        tables = _tables(view.schema, rows, databases, options)
        tables = check_unchanged_at_end(tables, bookie)
        write_output(args, view.schema, tables, private=args.show_keys)
    return report_findings(_findings(databases))


def _databases_with(view: _View, databases: list[ChosenDatabase]) -> list[ChosenDatabase]:
    """Return the databases that have the file; `InvalidArgument` if none has."""
    file_name = view.file_name
    number, dot, suffix = file_name.partition(".")
    if number.isdecimal() and dot + suffix in view.suffixes:
        having = [each for each in databases if (each.files.path / file_name).is_file()]
        if having:
            return having
    paths = ", ".join(str(database.files.path) for database in databases)
    kinds = " or ".join({".sst": "table file", ".log": "log"}[each] for each in view.suffixes)
    raise InvalidArgument(f"{view.option} {file_name[:60]}: no such {kinds} in {paths}")


def _tables(
    schema: Schema,
    rows: Callable[[ChosenDatabase, Any], Iterator[_Row]],
    databases: list[ChosenDatabase],
    options: Any,
) -> Iterator[Table]:
    """Yield the rows of all databases as tables."""
    all_rows = (row for database in databases for row in rows(database, options))
    yield from tables_of_rows(schema, all_rows, _ROWS_PER_TABLE)


def _findings(databases: list[ChosenDatabase]) -> Iterator[Finding]:
    for database in databases:
        yield from database.files.findings
