"""What the commands that rewrite a directory share: arguments, the run, the result's row."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening_options,
    refuse_output_in,
    report_findings,
)
from bkstore.files.user_outputs import refuse_inputs
from bkstore.tables import REWRITES, Schema, Table

if TYPE_CHECKING:
    from bkstore.offline.rewrite import RewriteProgress, RewriteResult
_R = TypeVar("_R")
_RESULT_CELLS = attrgetter(
    *("layout_before", "layout", "directories", "ledgers", "entries", "duplicates", "left_out"),
    *("logs", "log_bytes", "linked", "renamed", "extra_links", "other_files", "compared"),
)


def add_rewrite_arguments(parser: Parser, schema: Schema, *, needs_to: bool = True) -> None:
    """Add SRC, DST, --to, --link, the options for opening SRC, and the output options."""
    parser.add_argument(
        "source",
        metavar="SRC",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf; not modified",
    )
    parser.add_argument("target", metavar="DST", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--to",
        choices=("rocksdb", "idx"),
        required=needs_to,
        help="the layout of the new index" + ("" if needs_to else " (default: that of SRC)"),
    )
    parser.add_argument(
        "--link",
        action="store_true",
        help="hard-link the entry logs instead of copying them, where possible",
    )
    add_opening_options(parser)
    add_output(parser, schema)


def run_rewrite(args: argparse.Namespace, rewrite: Callable[..., _R], **options: Any) -> _R:
    """Call `rewrite` with the shared arguments and its own `options`, and show its progress. First
    raises `InvalidArgument` if -o lies in SRC or DST."""
    from bkstore.offline.rewrite import OpenOptions

    if args.output is not None:
        refuse_inputs(args.output, [args.target])
        refuse_output_in(args, [args.source])
    opening = OpenOptions(args.live, args.layout, args.root)
    with work_progress("row") as show_progress:

        def progress(state: RewriteProgress) -> None:
            if show_progress is not None:
                total = state.total or 2 * state.done + 1  # if unknown, the bar stays half full
                show_progress(state.step, state.done, total, state.rows)

        shared = {"link": args.link, "opening": opening}
        return rewrite(args.source, args.target, args.to, progress, **shared, **options)


def write_result(args: argparse.Namespace, result: RewriteResult) -> int:
    """Write the row of a result and print its findings; return the exit code."""
    row = (str(result.source), str(result.target), *_RESULT_CELLS(result))
    write_output(args, REWRITES, [Table.from_rows(REWRITES, [row])])
    return report_findings(result.findings)
