"""Options that say in which form, where to and with which columns a command answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from bkstore.cli.screen.column_choice import Shown
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.table_output import FORMATS, write_tables
from bkstore.errors import InvalidArgument
from bkstore.tables import Schema, Table

_SUFFIXES = {"": "table", ".txt": "table", **{f".{form}": form for form in FORMATS[1:]}}


def add_output(parser: Parser, schema: Schema | None) -> None:
    """Add --format, -o, --columns and --wide, for a command that answers with `schema`.

    None where it depends on other arguments; the command checks the columns then.
    """
    parser.add_argument(
        "--format", choices=FORMATS, help="default: what FILE's suffix says, else table"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write there instead of to stdout; .csv, .json, .jsonl and .parquet say the format, "
        ".txt and none are a table",
    )
    add_columns(parser, None if schema is None else schema.names)
    parser.checks += (_check_form,)


def _check_form(parser: Parser, args: argparse.Namespace) -> None:
    """End with the parser's error where nothing says the format, before any work is done.

    `MissingDependency` for a format that needs a package which is not installed.
    """
    try:
        form = chosen_output(args)
    except InvalidArgument as error:
        parser.error(f"argument -o/--output: {error}")
    if form == "parquet":
        require_packages("Parquet output", "pyarrow")


def add_columns(parser: argparse.ArgumentParser, names: list[str] | None = None) -> None:
    """Add --columns, which takes these names (None: not known before the command runs), --wide."""
    known = "" if names is None else f" of {', '.join(names)}"
    parser.add_argument(
        "--columns",
        metavar="NAME[,NAME]",
        type=_column_names(names),
        help=f"only these columns{known}",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="in a table, every column and all of each; without it, what fits the terminal "
        "(the other formats have every column)",
    )


def _column_names(known: list[str] | None) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        found = [word.strip() for word in text.split(",")]
        wrong = unknown_column(found, found if known is None else known)
        if wrong is not None:
            raise argparse.ArgumentTypeError(wrong)
        return found

    return names


def unknown_column(names: list[str], known: list[str]) -> str | None:
    """Say what is wrong with column names: one is not known, or there twice; None if nothing is.

    >>> unknown_column(["entries", "lac"], ["ledger_id", "entries"])
    "there is no column 'lac': there are ledger_id, entries"
    """
    for at, name in enumerate(names):
        if name not in known:
            return f"there is no column {name[:60]!r}: there are {', '.join(known)}"
        if name in names[:at]:
            return f"column {name!r} is named twice"
    return None


def chosen_form(form: str | None, target: Path | None) -> str:
    """Return the format: the one that was given, else what the file's suffix says.

    A file without a suffix is a table. Raises `InvalidArgument` for a suffix that says nothing.

    >>> chosen_form(None, Path("x.CSV")), chosen_form("json", Path("x.csv"))
    ('csv', 'json')
    >>> chosen_form(None, None)
    'table'
    """
    if form is not None:
        return form
    suffix = "" if target is None else target.suffix.lower().removesuffix(".")
    if suffix not in _SUFFIXES:
        known = ", ".join(filter(None, _SUFFIXES))
        raise InvalidArgument(f"{target}: suffix {suffix} says no format: {known}, or --format")
    return _SUFFIXES[suffix]


def chosen_output(args: argparse.Namespace) -> str:
    """Return the format that the arguments ask for."""
    return chosen_form(args.format, args.output)


def write_output(
    args: argparse.Namespace, schema: Schema, tables: Iterable[Table], *, private: bool = False
) -> None:
    """Write tables as the arguments say."""
    shown = Shown(args.columns, args.wide)
    write_tables(schema, tables, chosen_output(args), args.output, private=private, shown=shown)
