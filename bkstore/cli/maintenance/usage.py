"""bkstore usage: what fills the disk: live bytes, garbage, pinned logs, the index, caches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.output_options import add_output, describe_column_problem, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening_options,
    open_bookie,
    refuse_output_in,
    report_findings,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.errors import BkstoreError, InvalidArgument, SystemRefused
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.tables import Table

if TYPE_CHECKING:
    from bkstore.cli.maintenance.usage_tables import UsageTable
    from bkstore.offline.usage.disk_usage import Progress

_ROW_KINDS = ("bookie", "log", "ledger", "scope", "log-and-ledger", "index", "cache")
_MAJOR_THRESHOLD, _MINOR_THRESHOLD = 0.8, 0.2  # a bookie's thresholds
_READ_AHEAD = 100
"""Copies of the library's values, so that --help need not import it."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf; one per bookie",
    )
    parser.add_argument(
        "--by",
        choices=_ROW_KINDS,
        default="bookie",
        help="what each row stands for (default: bookie)",
    )
    parser.add_argument(
        "--live-ledgers",
        metavar="FILE",
        type=Path,
        help="file of the ledgers to keep, one id per line; all others are garbage "
        "(default: keep the ledgers in the index)",
    )
    parser.add_argument(
        "--threshold",
        metavar="PART",
        type=float,
        default=_MAJOR_THRESHOLD,
        help="logs with a smaller live part would be compacted "
        f"(default {_MAJOR_THRESHOLD:g}, a bookie's major compaction)",
    )
    parser.add_argument(
        "--pinned",
        metavar="PART",
        type=float,
        default=_MINOR_THRESHOLD,
        help=f"a log with a smaller live part counts as pinned (default {_MINOR_THRESHOLD:g})",
    )
    _add_readers(parser)
    add_opening_options(parser)
    add_output(parser, None)
    parser.checks += (_check_columns,)


def _add_readers(parser: Parser) -> None:
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


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    problem = describe_column_problem(args.columns or [], _requested_table(args).schema.names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")


def _requested_table(args: argparse.Namespace) -> UsageTable:
    from bkstore.cli.maintenance.usage_tables import TABLES_BY_KIND

    return TABLES_BY_KIND[args.by]


def run(args: argparse.Namespace) -> int:
    """Print the rows asked for by --by for each DIR; the exit code is 1 if part of a directory
    could not be read, 2 if a whole one could not: it is left out, with a message."""
    from bkstore.offline.usage import read_live_list

    live_ledgers = None if args.live_ledgers is None else read_live_list(args.live_ledgers)
    findings: list[Finding] = []
    left_out: list[Path] = []
    refuse_output_in(args, args.directories)
    with work_progress("logs") as show_progress:
        tables = _tables(args, live_ledgers, findings, left_out, show_progress)
        write_output(args, _requested_table(args).schema, tables)
    code = report_findings(findings)
    return 2 if left_out else code


def _tables(
    args: argparse.Namespace,
    live_ledgers: set[LedgerId] | None,
    findings: list[Finding],
    left_out: list[Path],
    show_progress: Progress | None,
) -> Iterator[Table]:
    """Yield the tables; append to `findings`, and to `left_out` if one of several is unreadable."""
    from bkstore.offline.usage import Usage

    for directory in args.directories:
        with ExitStack() as stack:
            try:
                bookie = stack.enter_context(open_bookie(args, directory))
                usage = Usage(bookie, live_ledgers, args.threshold, args.pinned, show_progress)
            except (InvalidArgument, SystemRefused):  # concern all directories
                raise
            except BkstoreError as error:
                if len(args.directories) == 1:
                    raise
                print_stderr(f"bkstore: left out: {error}")
                left_out.append(directory)
                continue
            unknown_count = usage.live_ledgers.unknown_count
            if unknown_count:
                unknown = format_count(unknown_count, "ledger is", "ledgers are")
                print_stderr(f"{directory}: of {args.live_ledgers}, {unknown} not in its index")
            yield from _requested_table(args).tables(bookie, usage, args)
            findings += usage.findings
            bookie.check_unchanged()
