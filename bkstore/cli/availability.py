"""bkstore availability: which entries of a ledger are here, condensed as in BP-34."""

from __future__ import annotations

import argparse

from bkstore.availability import Availability, Encoding
from bkstore.cli.ledger import note_unknown
from bkstore.cli.options import (
    add_directory,
    add_ledger,
    add_output,
    chosen_ledger,
    open_bookie,
    parse_range,
)
from bkstore.cli.output import write_tables
from bkstore.ids import LedgerId
from bkstore.tables import AVAILABILITY, Table

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger(parser)
    parser.add_argument(
        "--encoding",
        choices=("grouped", "bookkeeper"),
        default="grouped",
        help="of `bytes`: as BP-34 designed it (default), or as a real bookie writes it",
    )
    parser.add_argument(
        "--missing-from", metavar="A:B", help="also which entries of A..B (inclusive) are not here"
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print one row: entries, bytes, groups, ranges, and what is missing if asked."""
    ledger = chosen_ledger(args)
    asked = parse_range(args.missing_from) if args.missing_from is not None else None
    with open_bookie(args) as bookie:
        here = bookie.index.availability(ledger)
        note_unknown(bookie, ledger)
        bookie.check_unchanged()
    table = availability_table(ledger, here, args.encoding, asked)
    write_tables(AVAILABILITY, [table], args.format, args.output)
    return 0


def availability_table(
    ledger: LedgerId, here: Availability, encoding: Encoding, asked: tuple[int, int] | None
) -> Table:
    """Return the one-row table of an answer; `asked` is the range to find missing entries of."""
    missing = None
    if asked is not None:
        missing = here.missing(Availability.from_ranges([asked])).ranges().tolist()
    row = (
        *ledger.signed,
        ledger.qualified_name,
        len(here),
        here.to_bytes(encoding),
        here.groups.tolist(),
        here.ranges().tolist(),
        missing,
    )
    return Table.from_rows(AVAILABILITY, [row])
