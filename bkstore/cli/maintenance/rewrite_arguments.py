"""Shared parts of the commands that rewrite a directory: arguments, progress, the result's row."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from bkstore.offline.rewrite import OpenOptions, RewriteProgress, RewriteResult


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


def opening_from_args(args: argparse.Namespace) -> OpenOptions:
    """Return the options for opening SRC."""
    from bkstore.offline.rewrite import OpenOptions

    return OpenOptions(args.live, args.layout, args.root)


def check_output(args: argparse.Namespace) -> None:
    """Raise `InvalidArgument` if -o lies in SRC or DST."""
    if args.output is None:
        return
    refuse_inputs(args.output, [args.target])
    refuse_output_in(args, [args.source])


@contextmanager
def rewrite_progress() -> Iterator[Callable[[RewriteProgress], None]]:
    """Yield a function that shows the progress of a rewrite if stderr is a terminal."""
    with work_progress("rows") as show_progress:

        def show_rewrite(state: RewriteProgress) -> None:
            if show_progress is not None:  # half a bar if the total is unknown
                show_progress(state.step, state.done, state.total or 2 * state.done + 1, state.rows)

        yield show_rewrite


def write_result(args: argparse.Namespace, result: RewriteResult) -> int:
    """Write the row of a result and print its findings; return the exit code."""
    row: tuple[Any, ...] = (
        str(result.source),
        str(result.target),
        result.layout_before,
        result.layout,
        result.directories,
        result.ledgers,
        result.entries,
        result.duplicates,
        result.left_out,
        result.logs,
        result.log_bytes,
        result.linked,
        result.renamed,
        result.extra_links,
        result.other_files,
        result.compared,
    )
    write_output(args, REWRITES, [Table.from_rows(REWRITES, [row])])
    return report_findings(result.findings)
