"""bkstore lastmark: for each journal, the position at which a replay would begin."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.storage.journal.last_mark import NO_MARK, journal_name, last_mark_name, read_mark
from bkstore.tables import LAST_MARKS, Table

_NUMBERED_MARK_FILE = re.compile(r"lastMark\.([0-9]{1,4})")

MarkRow = tuple[int, str | None, int, str, int]


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_output(parser, LAST_MARKS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each journal."""
    with open_bookie(args, needs_index=False) as bookie:
        rows = list(_mark_rows(bookie.folders.ledger, len(bookie.folders.journal)))
        bookie.check_unchanged()
    write_output(args, LAST_MARKS, [Table.from_rows(LAST_MARKS, rows)])
    return 0


def _mark_rows(ledger_dirs: list[Path], journal_dir_count: int) -> Iterator[MarkRow]:
    """Yield the greatest mark of each journal, and the file that contains it. There are as many
    journals as journal directories, or more if a numbered mark file requires it."""
    file_names = [file_name for current in ledger_dirs for file_name in os.listdir(current)]
    matches = map(_NUMBERED_MARK_FILE.fullmatch, file_names)
    mark_numbers = [int(match[1]) for match in matches if match]
    journal_count = max([journal_dir_count, *(number + 1 for number in mark_numbers)])
    if journal_count > 1 or mark_numbers:  # a single journal's mark file has no number
        for number in range(journal_count):
            yield _greatest_mark(ledger_dirs, number, last_mark_name(number))
    else:
        yield _greatest_mark(ledger_dirs, 0, last_mark_name())


def _greatest_mark(ledger_dirs: list[Path], journal_number: int, file_name: str) -> MarkRow:
    """Return the row of the highest mark of a journal in any ledger directory, with its file."""
    mark = NO_MARK
    path: str | None = None
    for current in ledger_dirs:
        mark_here = read_mark(current / file_name)
        if mark_here is not None and (path is None or mark_here > mark):
            mark, path = mark_here, str(current / file_name)
    return journal_number, path, mark.journal_id, journal_name(mark.journal_id), mark.position
