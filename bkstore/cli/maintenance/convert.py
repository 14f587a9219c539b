"""bkstore convert: a bookie's directory with its index as RocksDB, or as index files."""

from __future__ import annotations

import argparse

from bkstore.cli.maintenance.rewrite_arguments import (
    add_rewrite_arguments,
    check_output,
    opening_from_args,
    rewrite_progress,
    write_result,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.tables import REWRITES


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rewrite_arguments(parser, REWRITES)


def run(args: argparse.Namespace) -> int:
    """Convert and print a row about the result; the exit code is 1 if part of SRC was left out."""
    from bkstore.offline.rewrite import convert

    check_output(args)
    with rewrite_progress() as show_progress:
        result = convert(
            args.source,
            args.target,
            args.to,
            show_progress,
            link=args.link,
            opening=opening_from_args(args),
        )
    return write_result(args, result)
