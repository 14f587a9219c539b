"""bkstore usage: what fills the disk: live bytes, garbage, pinned logs, the index, caches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.output_options import add_output, unknown_column, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening,
    open_bookie,
    refuse_output_in,
    report_findings,
)
from bkstore.counts import counted
from bkstore.errors import BkstoreError, InvalidArgument, SystemRefused
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.tables import Table

if TYPE_CHECKING:
    from bkstore.cli.care.usage_rows import Answer
    from bkstore.offline.usage.run import Progress

_BY = ("bookie", "log", "ledger", "scope", "log-and-ledger", "index", "cache")
_MAJOR, _MINOR = 0.8, 0.2  # a bookie's thresholds
_READ_AHEAD = 100
"""All are the library's, named here so that the help loads none of it."""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf, one a bookie",
    )
    parser.add_argument(
        "--by",
        choices=_BY,
        default="bookie",
        help="what to answer with a row for each of (default: bookie)",
    )
    parser.add_argument(
        "--live-ledgers",
        metavar="FILE",
        type=Path,
        help="the ledgers that are still wanted, an id a line; all others are garbage "
        "(default: what the index knows is wanted)",
    )
    parser.add_argument(
        "--threshold",
        metavar="PART",
        type=float,
        default=_MAJOR,
        help="logs of which less is live would be compacted "
        f"(default {_MAJOR:g}, a bookie's major compaction)",
    )
    parser.add_argument(
        "--pinned",
        metavar="PART",
        type=float,
        default=_MINOR,
        help=f"a log of which less is live counts as pinned (default {_MINOR:g})",
    )
    _add_readers(parser)
    add_opening(parser)
    add_output(parser, None)
    parser.checks += (_check_columns,)


def _add_readers(parser: Parser) -> None:
    parser.add_argument(
        "--readers",
        metavar="N",
        type=int,
        default=1,
        help="with --by cache: how many read ledgers from end to end at once (default 1)",
    )
    parser.add_argument(
        "--read-ahead",
        metavar="N",
        type=int,
        default=_READ_AHEAD,
        help=f"with --by cache: entries that are read ahead (default {_READ_AHEAD})",
    )


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    wrong = unknown_column(args.columns or [], _answer(args).schema.names)
    if wrong is not None:
        parser.error(f"argument --columns: {wrong}")


def _answer(args: argparse.Namespace) -> Answer:
    from bkstore.cli.care.usage_rows import ANSWERS

    return ANSWERS[args.by]


def run(args: argparse.Namespace) -> int:
    """Print what was asked for of each DIR; exit code 1 for what could not be read of one, 2 where
    one could not be read at all: it is left out, and told."""
    from bkstore.offline.usage import read_live_list

    listed = None if args.live_ledgers is None else read_live_list(args.live_ledgers)
    findings: list[Finding] = []
    left_out: list[Path] = []
    refuse_output_in(args, args.directories)
    with work_progress("logs") as show:
        tables = _tables(args, listed, findings, left_out, show)
        write_output(args, _answer(args).schema, tables)
    code = report_findings(findings)
    return 2 if left_out else code


def _tables(
    args: argparse.Namespace,
    listed: set[LedgerId] | None,
    findings: list[Finding],
    left_out: list[Path],
    show: Progress | None,
) -> Iterator[Table]:
    from bkstore.offline.usage import Usage

    for directory in args.directories:
        with ExitStack() as opened:
            try:
                bookie = opened.enter_context(open_bookie(args, directory))
                usage = Usage(bookie, listed, args.threshold, args.pinned, show)
            except (InvalidArgument, SystemRefused):  # an option, an output, the machine
                raise
            except BkstoreError as error:
                if len(args.directories) == 1:
                    raise
                tell(f"bkstore: left out: {error}")
                left_out.append(directory)
                continue
            if usage.live.unknown:
                some = counted(usage.live.unknown, "ledger is", "ledgers are")
                tell(f"{directory}: of {args.live_ledgers}, {some} not in its index")
            yield from _answer(args).tables(bookie, usage, args)
            findings += usage.findings
            bookie.check_unchanged()
