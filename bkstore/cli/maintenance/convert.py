"""bkstore convert: a bookie's directory with its index as RocksDB, or as index files."""

from __future__ import annotations

import argparse
from pathlib import Path

from bkstore.cli.maintenance.rewrite_arguments import (
    add_rewrite_arguments,
    run_rewrite,
    write_result,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.errors import CorruptionError
from bkstore.tables import REWRITES


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rewrite_arguments(parser, REWRITES)


def run(args: argparse.Namespace) -> int:
    """Convert and print a row about the result; the exit code is 1 if part of SRC was left out."""
    from bkstore.offline.rewrite import convert

    try:
        result = run_rewrite(args, convert)
    except CorruptionError as error:
        if Path(error.file or "").is_relative_to(args.source):  # of SRC, not of DST
            error.add_note(
                "bkstore rebuild-index makes an index from the entry logs, without this one"
            )
        raise
    return write_result(args, result)
