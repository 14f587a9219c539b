"""bkstore availability: which entries of a ledger are here, condensed as in BP-34."""

from __future__ import annotations

import argparse
import re

from bkstore import schedule
from bkstore.availability import Availability, Encoding
from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_options import add_ledger_or_filters
from bkstore.cli.screen.cells import list_ranges
from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    find_ledger,
    ledger_from_args,
    report_unknown,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import (
    add_directory,
    open_bookie,
    parse_range,
    report_findings,
)
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.tables import AVAILABILITY, Table


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_argument(parser, is_required=False)
    add_ledger_or_filters(parser, "for the filters below")
    parser.add_argument(
        "--encoding",
        choices=("grouped", "bookkeeper"),
        default="grouped",
        help="of `bytes`: as designed in BP-34 (default), or as a real bookie writes it",
    )
    parser.add_argument(
        "--missing-from",
        metavar="A:B",
        help="also list the entries of A..B (inclusive) that are missing",
    )
    parser.add_argument(
        "--stripe",
        metavar="E:W:INDEX",
        help="of A..B, expect only the entries of the bookie at INDEX of an ensemble of E "
        "with write quorum W",
    )
    add_output(parser, AVAILABILITY)


def run(args: argparse.Namespace) -> int:
    """Print a row for the ledger, or for each that the filters choose: entries, bytes, groups,
    ranges, and with --missing-from the missing ones."""
    expected = expected_entries(args.missing_from, args.stripe)
    choice = read_ledger_choice(args)
    chosen = None if choice is None else choice.ledgers
    with open_bookie(args) as bookie:
        if chosen is None:
            ledgers = [ledger_from_args(args)]
            presence = find_ledger(bookie, ledgers[0])
        else:
            listing = bookie.index.list_readable_ledgers()
            ledgers = [ledger_id for ledger_id in listing.ledgers if ledger_id in chosen]
        tables = [
            availability_table(ledger, bookie.index.availability(ledger), args.encoding, expected)
            for ledger in ledgers
        ]
        bookie.check_unchanged()
    # If the filters choose no ledger, `choice.report` prints that: no second message.
    write_output(args, AVAILABILITY, tables, reports_no_rows=lambda: False)
    if choice is None:
        return report_unknown(ledgers[0], presence)
    return choice.report(report_findings(listing.findings), is_empty=not ledgers)


def expected_entries(entry_range: str | None, stripe: str | None) -> Availability | None:
    """Return the entries that should be here: those of --missing-from, of them with --stripe those
    of one bookie of an ensemble; None without --missing-from. Raises `InvalidArgument` for --stripe
    alone, or if either is malformed."""
    if entry_range is None:
        if stripe is not None:
            raise InvalidArgument(
                "--stripe limits the entries of --missing-from to those of one bookie: give both"
            )
        return None
    first, last = parse_range(entry_range)
    if stripe is None:
        return Availability.from_ranges([(first, last)])
    match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10}):([0-9]{1,10})", stripe)
    if match is None:
        raise InvalidArgument(f"not a stripe: {stripe[:60]!r} (E:W:INDEX, for example 3:2:0)")
    ensemble, quorum, index = map(int, match.groups())
    return schedule.expected(first, last, index, ensemble, quorum)


def availability_table(
    ledger: LedgerId,
    stored: Availability,
    encoding: Encoding,
    expected: Availability | None,
) -> Table:
    """Return the one-row `availability` table; `expected` are the entries that should be present.
    A column of too many ranges is null."""
    missing = None if expected is None else stored.missing(expected)
    row = (
        *ledger.signed,
        ledger.qualified_name,
        len(stored),
        stored.to_bytes(encoding),
        stored.groups.tolist(),
        list_ranges(stored),
        None if missing is None else list_ranges(missing),
        None if missing is None else len(missing),
        None if missing is None else missing.groups.tolist(),
    )
    return Table.from_rows(AVAILABILITY, [row])
