"""bkstore ledger: the entries of one ledger and their locations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    find_ledger,
    ledger_from_args,
    report_unknown,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, check_unchanged_at_end, open_bookie
from bkstore.ids import LedgerId, log_ids_of, positions_of
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import LOCATIONS, Table

ROWS_PER_TABLE = 1 << 16


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_argument(parser)
    add_output(parser, LOCATIONS)


def run(args: argparse.Namespace) -> int:
    """Print the location of every entry; the exit code is 1 if the ledger is unknown."""
    ledger = ledger_from_args(args)
    with open_bookie(args) as bookie:
        tables = _location_tables(bookie, ledger)
        presence = find_ledger(bookie, ledger)
        write_output(
            args,
            LOCATIONS,
            check_unchanged_at_end(tables, bookie),
            reports_no_rows=lambda: presence is True,  # for an unknown ledger one message is enough
        )
    return report_unknown(ledger, presence)


def _location_tables(bookie: BookieDir, ledger: LedgerId) -> Iterator[Table]:
    """Yield the rows of `LOCATIONS` for a ledger's entries, in tables of limited size."""
    entries, dir_indexes, locations = bookie.locate(ledger)
    for start in range(0, max(entries.size, 1), ROWS_PER_TABLE):  # one table if it is empty
        rows = slice(start, start + ROWS_PER_TABLE)
        row_locations = locations[rows]
        columns = (  # of `LOCATIONS`, in its order
            entries[rows],
            dir_indexes[rows],
            log_ids_of(row_locations),
            positions_of(row_locations),
            row_locations,
        )
        yield Table(LOCATIONS, dict(zip(LOCATIONS.names, columns)))
