"""bkstore rebuild-index: a bookie's directory with an index made of its entry logs."""

from __future__ import annotations

import argparse

from bkstore.cli.care.rewriting import add_rewriting, check_output, opening, progress, report
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.parser import Parser
from bkstore.counts import counted
from bkstore.tables import REWRITES


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rewriting(parser, REWRITES)
    parser.add_argument(
        "--all-ledgers",
        action=argparse.BooleanOptionalAction,
        help="make every ledger that the entry logs hold, deleted ones too (default: those that "
        "the bookie knows; all, where the old index cannot say which these are)",
    )


def run(args: argparse.Namespace) -> int:
    """Rebuild, and print what was made; exit code 1 for damage and for states that are lost."""
    from bkstore.offline.rewrite import rebuild_index

    check_output(args)
    with progress() as shown:
        result = rebuild_index(
            args.source,
            args.target,
            args.to,
            shown,
            all_ledgers=args.all_ledgers,
            link=args.link,
            opening=opening(args),
        )
    if result.left_out:
        of = counted(result.left_out, "ledger")
        tell(f"not made: {of} in the logs that the bookie does not know (--all-ledgers)")
    return report(args, result)
