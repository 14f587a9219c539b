"""bkstore lastmark: for each journal, the place from which a replay would begin."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.storage.journal.last_mark import NO_MARK, journal_name, last_mark_name, mark_of_file
from bkstore.tables import LAST_MARKS, Table

_NUMBERED = re.compile(r"lastMark\.([0-9]{1,4})")

Row = tuple[int, str | None, int, str, int]


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_output(parser, LAST_MARKS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each journal."""
    with open_bookie(args, needs_index=False) as bookie:
        rows = list(_rows(bookie.folders.ledger, len(bookie.folders.journal)))
        bookie.check_unchanged()
    write_output(args, LAST_MARKS, [Table.from_rows(LAST_MARKS, rows)])
    return 0


def _rows(ledgers: list[Path], journals: int) -> Iterator[Row]:
    """Yield the greatest mark of each journal, and the file that has it.

    There are as many journals as directories are here, or as the marks' names say.
    """
    names = [name for current in ledgers for name in os.listdir(current)]
    found = [int(match[1]) for match in map(_NUMBERED.fullmatch, names) if match]
    count = max([journals, *(number + 1 for number in found)])
    if count > 1 or found:
        for number in range(count):
            yield _greatest(ledgers, number, last_mark_name(number))
    else:
        yield _greatest(ledgers, 0, last_mark_name())


def _greatest(ledgers: list[Path], number: int, name: str) -> Row:
    marks = [(mark_of_file(current / name), str(current / name)) for current in ledgers]
    there = [(mark, path) for mark, path in marks if mark is not None]
    mark, path = max(there, key=lambda pair: pair[0]) if there else (NO_MARK, None)
    return number, path, mark.journal_id, journal_name(mark.journal_id), mark.position
