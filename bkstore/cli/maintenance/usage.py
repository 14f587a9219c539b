"""bkstore usage: what fills the disk: live bytes, garbage, pinned logs, the index, caches."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bkstore.cli.fleet import Fleet, ShowProgress, add_directories
from bkstore.cli.terminal.output_options import (
    add_output,
    describe_column_problem,
    output_format_from_args,
    write_output,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import open_bookie, refuse_output_in
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.tables import Table

if TYPE_CHECKING:
    from bkstore.cli.maintenance.usage_tables import UsageTable

_ROW_KINDS = ("bookie", "log", "ledger", "scope", "log-and-ledger", "index", "cache")
_MAJOR_THRESHOLD, _MINOR_THRESHOLD = 0.8, 0.2  # a bookie's thresholds
_READ_AHEAD = 100
"""Copies of the library's values, so that --help need not import it."""


class _Outcome(NamedTuple):
    """What is told of a bookie beside its rows."""

    findings: list[Finding]
    unknown_count: int  # ids of --live-ledgers that its index does not have


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directories(parser)
    add = parser.add_argument
    add(
        "--by",
        choices=_ROW_KINDS,
        default="bookie",
        help="what each row stands for (default: bookie)",
    )
    add(
        "--detail",
        action="store_true",
        help="show all numbers of each bookie, one a line, instead of a row and a total",
    )
    add(
        "--bytes",
        action="store_true",
        help="show sizes in bytes, as formats other than tables always do",
    )
    add(
        "--live-ledgers",
        metavar="FILE",
        type=Path,
        help="file of the ledgers to keep, one id per line; all others are garbage "
        "(default: keep the ledgers in the index)",
    )
    add(
        "--threshold",
        metavar="PART",
        type=float,
        default=_MAJOR_THRESHOLD,
        help="logs with a smaller live part would be compacted "
        f"(default {_MAJOR_THRESHOLD:g}, a bookie's major compaction)",
    )
    add(
        "--pinned",
        metavar="PART",
        type=float,
        default=_MINOR_THRESHOLD,
        help=f"a log with a smaller live part counts as pinned (default {_MINOR_THRESHOLD:g})",
    )
    _add_readers(parser)
    add_output(parser, None)
    parser.checks += (_check_options,)


def _add_readers(parser: Parser) -> None:
    """Add the arguments of ``--by cache``."""
    parser.add_argument(
        "--readers",
        metavar="N",
        type=int,
        default=1,
        help="with --by cache: number of readers that read whole ledgers at once (default 1)",
    )
    parser.add_argument(
        "--read-ahead",
        metavar="N",
        type=int,
        default=_READ_AHEAD,
        help=f"with --by cache: number of entries read ahead (default {_READ_AHEAD})",
    )


def _check_options(parser: Parser, args: argparse.Namespace) -> None:
    """End with a usage error if the options contradict each other."""
    problem = describe_column_problem(args.columns or [], _requested_table(args).schema.names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")
    if args.detail and args.by != "bookie":
        parser.error("argument --detail: requires --by bookie")
    if args.detail and args.columns:
        parser.error("argument --detail: shows all columns; omit --columns")


def _requested_table(args: argparse.Namespace) -> UsageTable:
    from bkstore.cli.maintenance.usage_tables import TABLES_BY_KIND

    return TABLES_BY_KIND[args.by]


def run(args: argparse.Namespace) -> int:
    """Print the rows asked for by --by for each DIR; the exit code is 1 if part of a directory
    could not be read, 2 if a whole one could not: it is left out, with a message."""
    from bkstore.cli.maintenance.screen_totals import DETAIL, for_screen
    from bkstore.offline.usage import read_live_list

    live_ledgers = None if args.live_ledgers is None else read_live_list(args.live_ledgers)
    refuse_output_in(args, args.directories)
    fleet = Fleet(args.directories, partial(_read_bookie, args, live_ledgers), args.jobs)
    schema = _requested_table(args).schema
    with work_progress("logs" if fleet.is_single else "bookies") as show_progress:
        tables = fleet.tables(show_progress)
        if output_format_from_args(args) == "table":
            has_total = args.by == "bookie" and not (fleet.is_single or args.detail)
            tables = for_screen(tables, exact=args.bytes, has_total=has_total)
            schema = DETAIL if args.detail else schema
        write_output(args, schema, tables)
    for directory, outcome in fleet.outcomes:
        if outcome.unknown_count:
            unknown = format_count(outcome.unknown_count, "ledger")
            print_stderr(f"{directory}: its index lacks {unknown} of {args.live_ledgers}")
    return fleet.exit_code(fleet.report_findings(lambda outcome: outcome.findings))


def _read_bookie(
    args: argparse.Namespace,
    live_ledgers: set[LedgerId] | None,
    directory: Path,
    show_progress: ShowProgress | None,
) -> Generator[Table, None, _Outcome]:
    """Yield the tables of one bookie; return what is told beside them."""
    from bkstore.offline.usage import Usage

    with open_bookie(args, directory) as bookie:
        usage = Usage(bookie, live_ledgers, args.threshold, args.pinned, show_progress)
        yield from _requested_table(args).tables(bookie, usage, args)
        bookie.check_unchanged()
        return _Outcome(usage.findings, usage.live_ledgers.unknown_count)
