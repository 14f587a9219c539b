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
from bkstore.index.hierarchical.file_tree import is_level_name
from bkstore.storage.directories.layout import DATABASE_NAMES
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
        if _is_in_index(Path(error.file or ""), args.source):
            error.add_note(
                "bkstore rebuild-index makes an index from the entry logs, without this one"
            )
        raise
    return write_result(args, result)


def _is_in_index(file: Path, source: Path) -> bool:
    """Return whether a damaged file is part of the source's index, which a rebuild does not need:
    an index file, a file of a database, or in the place of one of their folders."""
    if not file.is_relative_to(source):
        return False
    # Only below `current`: a ledger directory may itself be called `ledgers`.
    databases = [("current", kind) for kind in DATABASE_NAMES]
    is_in_database = file.parts[-2:] in databases or file.parts[-3:-1] in databases
    return file.suffix == ".idx" or is_level_name(file.name) or is_in_database
