"""Options for the format, destination and columns of a command's output."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.table_output import FORMATS, write_tables
from bkstore.errors import InvalidArgument
from bkstore.tables import Schema, Table

_FORMAT_OF_SUFFIX = {"": "table", ".txt": "table", **{f".{form}": form for form in FORMATS[1:]}}


_COLUMNS_OF_BOOKIES = ("bookie", "layout")
"""Columns that differ between bookies: with several, a table has them from its first row on."""


def add_output(parser: Parser, schema: Schema | None) -> None:
    """Add --format, -o, --columns and --wide, for a command that writes tables of `schema`: None if
    that depends on other arguments, in which case the command must check the columns."""
    parser.add_argument("--format", choices=FORMATS, help="default: by FILE's suffix, else table")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write there instead of to stdout; .csv, .json, .jsonl and .parquet select the "
        "format, .txt and none a table",
    )
    add_columns(parser, None if schema is None else schema.names)
    parser.checks += (_check_form,)


def _check_form(parser: Parser, args: argparse.Namespace) -> None:
    """Exit with a usage error if the output format cannot be determined, before any work; raises
    `MissingDependency` if the format needs a package that is not installed."""
    try:
        form = output_format_from_args(args)
    except InvalidArgument as error:
        parser.error(f"argument -o/--output: {error}")
    if form == "parquet":
        require_packages("Parquet output", "pyarrow")


def add_columns(parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
    """Add --wide and --columns, which accepts `names` (None: any, the command checks them)."""
    known = "" if names is None else f" of {', '.join(names)}"
    parser.add_argument(
        "--columns",
        metavar="NAME[,NAME]",
        type=_column_names_parser(names),
        help=f"only these columns{known}",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="show all columns of a table in full, instead of what fits the terminal "
        "(other formats have every column)",
    )


def _column_names_parser(known: list[str] | None) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated column names, `known` ones unless that is None; it raises
    `ArgumentTypeError` for an unknown or repeated name."""

    def parse_names(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        problem = describe_column_problem(names, names if known is None else known)
        if problem is not None:
            raise argparse.ArgumentTypeError(problem)
        return names

    return parse_names


def describe_column_problem(names: list[str], known: list[str]) -> str | None:
    """Return a message if one of the column names is unknown or repeated, None otherwise.

    >>> describe_column_problem(["entries", "lac"], ["ledger_id", "entries"])
    "unknown column 'lac'; known are ledger_id, entries"
    """
    for index, name in enumerate(names):
        if name not in known:
            return f"unknown column {name[:60]!r}; known are {', '.join(known)}"
        if name in names[:index]:
            return f"column {name!r} is given twice"
    return None


def output_format(form: str | None, target: Path | None) -> str:
    """Return the output format: `form` if it was given, else the one of the file's suffix, "table"
    without one. Raises `InvalidArgument` for an unknown suffix.

    >>> output_format(None, Path("x.CSV")), output_format("json", Path("x.csv"))
    ('csv', 'json')
    >>> output_format(None, None)
    'table'
    """
    if form is not None:
        return form
    suffix = "" if target is None else target.suffix.lower().removesuffix(".")
    if suffix not in _FORMAT_OF_SUFFIX:
        choices = f"use {', '.join(filter(None, _FORMAT_OF_SUFFIX))}, or --format"
        raise InvalidArgument(f"{target}: suffix {suffix} selects no format: {choices}")
    return _FORMAT_OF_SUFFIX[suffix]


def output_format_from_args(args: argparse.Namespace) -> str:
    """Return the format that the arguments ask for."""
    return output_format(args.format, args.output)


def write_output(
    args: argparse.Namespace,
    schema: Schema,
    tables: Iterable[Table],
    *,
    private: bool = False,
    reports_no_rows: Callable[[], bool] = lambda: True,
) -> None:
    """Write tables in the format and to the destination that the arguments ask for. If they have no
    rows, stderr gets the schema's message, such as "no entries". Commands that print a reason
    themselves pass a `reports_no_rows` that returns False; it is called after the last table."""
    form = output_format_from_args(args)
    has_several_bookies = len(getattr(args, "directories", ())) > 1
    varied = _COLUMNS_OF_BOOKIES if has_several_bookies else ()
    write_tables(
        schema,
        tables,
        form,
        args.output,
        private=private,
        requested=RequestedColumns(args.columns, args.wide, varied),
        reports_no_rows=reports_no_rows,
    )
