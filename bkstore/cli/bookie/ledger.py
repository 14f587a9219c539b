"""bkstore ledger: the entries of one ledger and where they lie."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bkstore.cli.terminal.ledger_options import add_ledger, chosen_ledger, report_unknown
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, open_bookie, until_unchanged
from bkstore.ids import LedgerId, log_ids, positions
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import LOCATIONS, Table

ROWS_PER_TABLE = 1 << 16


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger(parser)
    add_output(parser, LOCATIONS)


def run(args: argparse.Namespace) -> int:
    """Print where every entry lies; exit code 1 if the ledger is not known."""
    ledger = chosen_ledger(args)
    with open_bookie(args) as bookie:
        tables = _location_tables(bookie, ledger)
        code = report_unknown(bookie, ledger)
        write_output(args, LOCATIONS, until_unchanged(tables, bookie))
    return code


def _location_tables(bookie: BookieDir, ledger: LedgerId) -> Iterator[Table]:
    """Yield the `locations` table of one ledger in pieces."""
    entries, numbers, locations = bookie.locate(ledger)
    for at in range(0, max(entries.size, 1), ROWS_PER_TABLE):
        part = slice(at, at + ROWS_PER_TABLE)
        places = locations[part]
        columns = (entries[part], numbers[part], log_ids(places), positions(places), places)
        yield Table(LOCATIONS, dict(zip(LOCATIONS.names, columns)))
