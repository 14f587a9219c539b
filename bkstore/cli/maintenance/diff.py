"""bkstore diff: differences between two bookies: ledgers, entries as ranges, states."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_columns import (
    add_owners,
    check_owner_columns,
    with_owner_columns,
)
from bkstore.cli.owners.owner_options import add_owner_filters
from bkstore.cli.screen.cells import list_ranges
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.ledger_options import add_ledger_options, only_ledger_from_args
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening_options,
    check_unchanged_at_end,
    open_bookie,
    report_findings,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import DIFFERENCES

if TYPE_CHECKING:
    from bkstore.offline.diff import Difference, DiffSide

_ROWS_PER_TABLE = 1 << 8
_OWNED_SCHEMA = with_owner_columns(DIFFERENCES)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    for name in "ab":
        what = "a ledger directory, a folder of several, a bk_server.conf, or a dump"
        parser.add_argument(name, metavar=name.upper(), type=Path, help=what)
    for name in "ab":
        what = f"bookie of {name.upper()} to compare, if that is a dump of several"
        parser.add_argument(f"--bookie-{name}", metavar="NAME", help=what)
    add_opening_options(parser)
    add_ledger_options(parser, "only this ledger")
    add_owner_filters(parser, "for owners as columns, and for the filters below")
    add_output(parser, _OWNED_SCHEMA)
    parser.checks += (check_owner_columns,)


def run(args: argparse.Namespace) -> int:
    """Print the differences; return 1 for any or unreadable data, 3 if no ledger was compared."""
    from bkstore.offline.diff import diff

    only_ledger = only_ledger_from_args(args)
    choice = read_ledger_choice(args)
    owners = None if choice is None else choice.owners
    chosen = None if choice is None else choice.ledgers
    findings: list[Finding] = []
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        show_progress = stack.enter_context(
            work_progress("ledger that differs", "ledgers that differ")
        )
        bookies: list[BookieDir] = []
        sides = [_open_side(args, name, stack, bookies) for name in "ab"]

        def count_ledger(ledger: LedgerId, differs: bool) -> None:
            counts["ledgers"] += 1
            counts["differ"] += differs
            if show_progress is not None:
                compared = counts["ledgers"]  # how many there are in all is not known
                step = f"ledger {ledger}"
                show_progress(step, compared, compared, counts["differ"])

        differences = diff(sides[0], sides[1], findings, only_ledger, count_ledger, chosen)
        tables = tables_of_rows(DIFFERENCES, map(_difference_row, differences), _ROWS_PER_TABLE)
        schema = DIFFERENCES
        if owners is not None:
            tables, schema = add_owners(tables, owners), _OWNED_SCHEMA
        write_output(args, schema, check_unchanged_at_end(tables, *bookies))
    code = report_findings(findings)
    if only_ledger is not None and not counts["ledgers"] and not findings:
        print_stderr(f"ledger {only_ledger} is on neither bookie")
        return 1
    verb = "differs" if counts["differ"] == 1 else "differ"
    print_stderr(f"{format_count(counts['ledgers'], 'ledger')} compared, {counts['differ']} {verb}")
    code = exit_code(findings=bool(counts["differ"] or code), checked=bool(counts["ledgers"]))
    return code if choice is None else choice.report(code, is_empty=not counts["ledgers"])


def _open_side(
    args: argparse.Namespace, letter: str, stack: ExitStack, bookies: list[BookieDir]
) -> DiffSide:
    """Open the side "a" or "b", a dump or a directory; appends an opened directory to `bookies`."""
    from bkstore.offline.diff import DirectorySide, DumpSide, is_dump

    path: Path = getattr(args, letter)
    bookie_name: str | None = getattr(args, f"bookie_{letter}")
    if is_dump(path):
        require_packages("reading a dump", "pyarrow")
        return DumpSide(path, bookie_name)
    if bookie_name is not None:
        raise InvalidArgument(f"--bookie-{letter}: {path} is not a dump")
    bookie_dir = stack.enter_context(open_bookie(args, path))
    bookies.append(bookie_dir)
    return DirectorySide(bookie_dir)


def _difference_row(difference: Difference) -> tuple[Any, ...]:
    """Return the row of a difference: the values of sides a and b, or entries that one lacks."""
    ids = (*difference.ledger.signed, difference.ledger.qualified_name)
    entries = difference.entries
    entry_cells: tuple[Any, ...] = (None,) * 5  # count, first, last, ranges, groups
    if entries is not None:
        count_and_ends = (len(entries), entries.first_entry, entries.last_entry)
        entry_cells = (*count_and_ends, list_ranges(entries), entries.groups.tolist())
    return (difference.kind, *ids, difference.only_in, difference.a, difference.b, *entry_cells)
