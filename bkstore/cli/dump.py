"""bkstore dump: the indexes of bookie directories as Parquet tables."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from bkstore.cli.options import add_opening, report_findings
from bkstore.cli.progress import row_progress
from bkstore.errors import InvalidArgument
from bkstore.offline.dump import dump
from bkstore.storage.directory import BookieDir

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directories", metavar="DIR", nargs="+", type=Path, help="bookie directories, one a bookie"
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--bookie-id",
        metavar="ID",
        action="append",
        help="name of a bookie, once for each DIR (default: the cookie's, else the folder's)",
    )
    add_opening(parser)


def run(args: argparse.Namespace) -> int:
    """Write `entries`, `groups` and `ledgers` below OUT and say how many rows."""
    ids = args.bookie_id or [None] * len(args.directories)
    if len(ids) != len(args.directories):
        raise InvalidArgument(f"{len(args.directories)} directories, {len(ids)} --bookie-id")
    with ExitStack() as stack:
        bookies = [
            stack.enter_context(
                BookieDir(directory, live=args.live, layout=args.layout, bookie_id=name)
            )
            for directory, name in zip(args.directories, ids)
        ]
        progress = stack.enter_context(row_progress("index rows"))
        result = dump(bookies, args.out, progress)
    told = ", ".join(f"{count} {table}" for table, count in result.rows.items())
    print(f"{args.out}: {told}", file=sys.stderr)  # noqa: T201
    return report_findings(result.findings)
