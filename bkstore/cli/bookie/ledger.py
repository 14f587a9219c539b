"""bkstore ledger: the entries of one ledger and where they lie."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bkstore.cli.terminal.shared_options import (
    add_directory,
    add_ledger,
    add_output,
    chosen_ledger,
    note_unknown,
    open_bookie,
)
from bkstore.cli.terminal.table_output import write_tables
from bkstore.ids import LedgerId, log_ids, positions
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import LOCATIONS, Table

__all__ = ["add_arguments", "run"]

ROWS_PER_TABLE = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print entry_id, dir_index, log_id, position and location of every entry."""
    ledger = chosen_ledger(args)
    with open_bookie(args) as bookie:
        tables = location_tables(bookie, ledger)
        write_tables(LOCATIONS, tables, args.format, args.output)
        note_unknown(bookie, ledger)
        bookie.check_unchanged()
    return 0


def location_tables(bookie: BookieDir, ledger: LedgerId) -> Iterator[Table]:
    """Yield the `locations` table of one ledger in pieces."""
    entries, numbers, locations = bookie.locate(ledger)
    for at in range(0, max(entries.size, 1), ROWS_PER_TABLE):
        part = slice(at, at + ROWS_PER_TABLE)
        places = locations[part]
        columns = (entries[part], numbers[part], log_ids(places), positions(places), places)
        yield Table(LOCATIONS, dict(zip(LOCATIONS.names, columns)))
