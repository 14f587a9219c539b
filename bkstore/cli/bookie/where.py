"""bkstore where: the entry logs that hold a ledger's entries, found without the index."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.availability import Availability
from bkstore.cli.screen.cells import list_ranges
from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    index_has_ledger,
    ledger_from_args,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    open_bookie,
    parse_range,
    report_findings,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.index.api import Finding
from bkstore.tables import LOG_ENTRIES

if TYPE_CHECKING:
    from bkstore.storage.read_only.find_logs import FoundLog

ROWS_PER_TABLE = 1 << 12


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_argument(parser, with_range=True)
    add = parser.add_argument
    add("--ranges", action="store_true", help="one row per range of entries instead of one per log")
    add("--copies", action="store_true", help="all logs with a copy instead of only the newest")
    add_output(parser, LOG_ENTRIES)


def run(args: argparse.Namespace) -> int:
    """Print a row for each log that holds any of the entries, damage to stderr; the exit code is 1
    if no log does and the index does not have the ledger either."""
    ledger = ledger_from_args(args)
    first, last = (0, None) if args.entries is None else parse_range(args.entries)
    findings: list[Finding] = []
    with open_bookie(args, needs_index=False) as bookie:
        found_logs = bookie.find_logs(ledger, first, last, copies=args.copies, findings=findings)
        ledger_known = bool(found_logs) or index_has_ledger(bookie, ledger)
        tables = tables_of_rows(LOG_ENTRIES, _log_rows(found_logs, args.ranges), ROWS_PER_TABLE)
        write_output(args, LOG_ENTRIES, check_unchanged_at_end(tables, bookie))
    if found_logs or findings:
        return report_findings(findings)
    print_stderr(f"no entry log here has a matching entry of ledger {ledger}")
    return 0 if ledger_known else 1


def _log_rows(found_logs: list[FoundLog], by_range: bool) -> Iterator[tuple[Any, ...]]:
    """Yield a row per entry log, or with `by_range` one per range of entries in it."""
    for log in found_logs:
        log_cells = (log.dir_index, log.log_id, Path(log.path).name)
        if by_range:
            for first, last in log.entries.iter_ranges():
                yield *log_cells, *_entry_cells(Availability.from_ranges([(first, last)]))
        else:
            yield *log_cells, *_entry_cells(log.entries)


def _entry_cells(entries: Availability) -> tuple[Any, ...]:
    ends = (entries.first_entry, entries.last_entry)
    return len(entries), *ends, list_ranges(entries), entries.groups.tolist()
