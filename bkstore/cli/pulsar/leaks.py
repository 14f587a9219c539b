"""bkstore leaks: the ledgers of Pulsar that nothing refers to, and those that are missing."""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.cli.owners.owner_options import add_owner_options, owner_filter_from_args
from bkstore.cli.pulsar.age_options import add_as_of, add_grace, grace_milliseconds
from bkstore.cli.pulsar.durations import parse_duration
from bkstore.cli.pulsar.location_options import PULSAR_HELP, parse_pulsar, pulsar_location
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    local_paths,
    parse_metadata_location,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.tables import LEAKS

if TYPE_CHECKING:
    from bkstore.pulsar import LeakReport
    from bkstore.pulsar.ledger_classes import ClassifiedLedger

_PAUSE_SECONDS = 5.0
_ROWS_PER_TABLE = 1000


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.intermixed = True
    add = parser.add_argument
    add("metadata", metavar="METADATA", type=parse_metadata_location, help=METADATA_HELP)
    add("--pulsar", metavar="LOCATION", type=parse_pulsar, help=PULSAR_HELP)
    add_grace(parser)
    add_as_of(parser)
    add(
        "--pause",
        metavar="TIME",
        type=parse_duration,
        default=_PAUSE_SECONDS,
        help="wait before looking again, if a running broker may be deleting ledgers (default: "
        f"{_PAUSE_SECONDS:g}s)",
    )
    add(
        "--usage",
        metavar="DIR",
        nargs="+",
        type=Path,
        default=[],
        help="directories of bookies, or a dump: show the bytes of each ledger, and how many are "
        "freed without compaction",
    )
    add("--all", action="store_true", help="also show referenced ledgers, and young ones without")
    add_owner_options(parser)
    add_output(parser, LEAKS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each ledger that is not as it should be, counts to stderr; the exit code is 1
    if any is leaked, dangling or an offloaded copy, or something cannot be read, 3 without any
    ledger."""
    from bkstore.cli.pulsar.leak_bytes import LeakBytes
    from bkstore.cli.pulsar.leak_rows import QUIET_CLASSES, describe_counts, leak_row

    if args.output is not None:
        location = pulsar_location(args)
        inputs = [args.metadata, location if isinstance(location, Path) else None]
        refuse_inputs(args.output, [*local_paths(*inputs), *args.usage])
        check_output(args.output)
    with _paused_collection():
        report = _search(args)
    owner_filter = owner_filter_from_args(args)
    chosen = [each for each in report.ledgers if owner_filter.matches(each.owner)]
    shown = [each for each in chosen if args.all or each.ledger_class not in QUIET_CLASSES]
    sizes = LeakBytes(args.usage, report.ledgers, shown)
    ordered = sorted(shown, key=sizes.order)
    rows = (leak_row(each, report.now, sizes.of(each.ledger)) for each in ordered)
    write_output(args, LEAKS, tables_of_rows(LEAKS, rows, _ROWS_PER_TABLE))
    report_findings([*report.findings, *sizes.findings])
    if args.usage:
        print_stderr(sizes.summary())
    print_stderr(describe_counts(Counter(each.ledger_class for each in chosen)) or "no ledgers")
    has_problems = _has_problems(report, chosen) or bool(sizes.findings)
    return exit_code(findings=has_problems, checked=bool(chosen))


@contextmanager
def _paused_collection() -> Iterator[None]:
    """Pause Python's collector of reference cycles, which metadata do not have: it would go through
    all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _search(args: argparse.Namespace) -> LeakReport:
    """Compare the ledgers of the metadata store with Pulsar's references."""
    from bkstore.cluster.store.opening import opened_metadata
    from bkstore.pulsar import LeakSearch
    from bkstore.pulsar.sources.opening import opened_pulsar

    with opened_metadata(args.metadata) as store, opened_pulsar(pulsar_location(args)) as nodes:
        search = LeakSearch(
            store,
            nodes,
            now=args.as_of,
            grace=grace_milliseconds(args),
            pause=args.pause,
            wait=_announced_wait,
            store_is_copy=isinstance(args.metadata, Path),
        )
        return search.run()


def _announced_wait(seconds: float) -> None:
    print_stderr(f"looking again in {seconds:g} s: brokers may be deleting ledgers")
    time.sleep(seconds)


def _has_problems(report: LeakReport, ledgers: list[ClassifiedLedger]) -> bool:
    from bkstore.pulsar.leak_search import PROBLEM_CLASSES

    return bool(report.findings) or any(each.ledger_class in PROBLEM_CLASSES for each in ledgers)
