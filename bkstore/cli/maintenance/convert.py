"""bkstore convert: a bookie's directory with its index as RocksDB, or as index files."""

from __future__ import annotations

import argparse

from bkstore.cli.maintenance.rewrite_arguments import (
    add_rewrite_arguments,
    run_rewrite,
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

    return write_result(args, run_rewrite(args, convert))
