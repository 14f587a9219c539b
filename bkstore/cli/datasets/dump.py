"""bkstore dump: the tables of bookie directories as Parquet, many bookies in one dataset."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.datasets.bookie_sources import BOOKIES_HELP, bookie_sources
from bkstore.cli.owners.owner_options import refuse_owner_filters
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import add_opening_options, report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.offline.staging_directory import partial_path

if TYPE_CHECKING:
    from bkstore.offline.dump import DumpProgress, DumpResult


_ABOUT_ALL_LEDGERS = (
    "a dump has all ledgers of its bookies, as they share entry logs, and orphans are found among "
    "all of them; choose topics in its analyses: bkstore analyze DUMP --metadata METADATA --topic "
    "PATTERN"
)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "directories",
        metavar="[NAME=]DIR",
        nargs="+",
        help=BOOKIES_HELP,
    )
    add("out", metavar="OUT", type=Path, help="a new or empty folder")
    add(
        "--bookie-id",
        metavar="ID",
        action="append",
        help="id of a bookie, once for each DIR (default: the cookie's, else the folder name)",
    )
    add("--length", action="store_true", help="read the length of each record from the entry logs")
    add(
        "--pulsar",
        action="store_true",
        help="also read when the messages of Apache Pulsar's topics were published, and how many "
        "each entry has; implies --length",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="parallel processes (default: one per CPU, fewer for few rows)",
    )
    add(
        "--since",
        metavar="DUMP",
        type=Path,
        help="an earlier dump of these bookies: link its files for what has not changed since, and "
        "read only the rest",
    )
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="resume an interrupted dump to OUT (default), or start over",
    )
    add_opening_options(parser)
    refuse_owner_filters(parser, _ABOUT_ALL_LEDGERS)


def run(args: argparse.Namespace) -> int:
    """Write the tables below OUT and print the row counts; the exit code is 1 for findings."""
    from bkstore.offline.dump import dump

    with work_progress("row") as show_progress:

        def progress(state: DumpProgress) -> None:
            if show_progress is not None:
                show_progress(f"{state.bookie}", state.done, state.total, state.rows)

        options = {"jobs": args.jobs, "length": args.length, "resume": args.resume}
        options |= {"pulsar": args.pulsar, "since": args.since}
        try:
            result = dump(bookie_sources(args, args.bookie_id), args.out, progress, **options)
        except KeyboardInterrupt:
            staging = partial_path(args.out)
            if staging.is_dir():
                print_stderr(f"interrupted; run the same dump again to resume from {staging}")
            raise
    _print_counts(args.out, result, args.since)
    if args.since is not None:
        _print_new_bookies(result, args.since)
    return report_findings(result.findings)


def _print_counts(out: Path, result: DumpResult, since: Path | None) -> None:
    """Print the rows of each table, and how many pieces (parts of a bookie that are dumped one by
    one) were taken from an interrupted or an earlier dump."""
    counts = ", ".join(
        format_count(count, "entry" if table == "entries" else table.removesuffix("s"), table)
        for table, count in result.rows.items()
    )
    if result.reused_pieces:
        counts += f"; {result.reused_pieces} of {result.pieces} pieces were already done"
    if since is not None:
        counts += f"; {result.unchanged_pieces} of {result.pieces} pieces unchanged since {since}"
    print_stderr(f"{out}: {counts}")


def _print_new_bookies(result: DumpResult, since: Path) -> None:
    """Print the bookies that the earlier dump does not have, of which nothing can be unchanged."""
    from bkstore.offline.reading.open_dump import open_dump

    earlier = open_dump(since)
    for bookie in result.bookies:
        if bookie.bookie_id not in (*earlier.bookies, *earlier.unread_bookies):
            print_stderr(f"{bookie.bookie_id}: is not in {since}, and was read in full")
