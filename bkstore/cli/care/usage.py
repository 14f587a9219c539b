"""bkstore usage: what fills the disk: live bytes, garbage, pinned logs, the index, caches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bkstore.cli.care.usage_rows import ANSWERS
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.output_options import add_output, unknown_column, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import add_opening, open_bookie, report_findings
from bkstore.counts import counted
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.usage import Usage, read_live_list
from bkstore.offline.usage.caches import DEFAULT_READ_AHEAD
from bkstore.offline.usage.run import Progress
from bkstore.storage.ledgers.garbage_collection import MAJOR_THRESHOLD, MINOR_THRESHOLD
from bkstore.tables import Table

__all__ = ["add_arguments", "run"]


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
        choices=tuple(ANSWERS),
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
        default=MAJOR_THRESHOLD,
        help="logs of which less is live would be compacted "
        f"(default {MAJOR_THRESHOLD:g}, a bookie's major compaction)",
    )
    parser.add_argument(
        "--pinned",
        metavar="PART",
        type=float,
        default=MINOR_THRESHOLD,
        help=f"a log of which less is live counts as pinned (default {MINOR_THRESHOLD:g})",
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
        default=DEFAULT_READ_AHEAD,
        help=f"with --by cache: entries that are read ahead (default {DEFAULT_READ_AHEAD})",
    )


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    names = ANSWERS[args.by].schema.names
    wrong = unknown_column(args.columns or [], names)
    if wrong is not None:
        parser.error(f"argument --columns: {wrong}")


def run(args: argparse.Namespace) -> int:
    """Print what was asked for of each DIR; exit code 1 for what could not be read."""
    listed = None if args.live_ledgers is None else read_live_list(args.live_ledgers)
    findings: list[Finding] = []
    with work_progress("logs") as show:
        write_output(args, ANSWERS[args.by].schema, _tables(args, listed, findings, show))
    return report_findings(findings)


def _tables(
    args: argparse.Namespace,
    listed: set[LedgerId] | None,
    findings: list[Finding],
    show: Progress | None,
) -> Iterator[Table]:
    for directory in args.directories:
        with open_bookie(args, directory) as bookie:
            usage = Usage(bookie, listed, args.threshold, args.pinned, show)
            if usage.live.unknown:
                some = counted(usage.live.unknown, "ledger is", "ledgers are")
                tell(f"{directory}: of {args.live_ledgers}, {some} not in its index")
            yield from ANSWERS[args.by].tables(bookie, usage, args)
            findings += usage.findings
            bookie.check_unchanged()
