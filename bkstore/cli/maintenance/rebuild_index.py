"""bkstore rebuild-index: a bookie's directory with an index rebuilt from its entry logs."""

from __future__ import annotations

import argparse

from bkstore.cli.maintenance.rewrite_arguments import (
    add_rewrite_arguments,
    run_rewrite,
    write_result,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.tables import REWRITES


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rewrite_arguments(parser, REWRITES)
    parser.add_argument(
        "--all-ledgers",
        action=argparse.BooleanOptionalAction,
        help="rebuild every ledger in the entry logs, deleted ones too (default: those known "
        "to the bookie; all if the old index cannot list them)",
    )


def run(args: argparse.Namespace) -> int:
    """Rebuild and print a row about the result; the exit code is 1 for damage and lost states."""
    from bkstore.offline.rewrite import rebuild_index

    result = run_rewrite(args, rebuild_index, all_ledgers=args.all_ledgers)
    if result.left_out:
        unknown = f"{format_count(result.left_out, 'ledger')} in the logs that are unknown"
        print_stderr(f"not rebuilt: {unknown} to the bookie (--all-ledgers)")
    return write_result(args, result)
