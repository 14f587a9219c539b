"""bkstore usage: what fills the disk: live bytes, garbage, pinned logs, the index, caches."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bkstore.cli.fleet import Fleet, ShowProgress, add_directories
from bkstore.cli.owners.owner_options import add_owner_filters, describe_filters
from bkstore.cli.owners.row_counter import RowCounter
from bkstore.cli.terminal.output_options import (
    add_output,
    describe_column_problem,
    output_format_from_args,
    write_output,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import open_bookie, refuse_output_in
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.tables import Schema, Table

if TYPE_CHECKING:
    from bkstore.cli.owners.ledger_choice import LedgerChoice
    from bkstore.offline.usage import OwnerNumbers
    from bkstore.offline.usage.owner_usage import BookieShares

_OWNER_KINDS = ("topic", "namespace", "tenant", "component")
_LEDGER_KINDS = ("ledger", "log-and-ledger")
_ROW_KINDS = ("bookie", "log", *_LEDGER_KINDS, "scope", "index", "cache", *_OWNER_KINDS)
_MAJOR_THRESHOLD, _MINOR_THRESHOLD = 0.8, 0.2  # a bookie's thresholds
_READ_AHEAD = 100
"""Copies of the library's values, so that --help need not import it."""


class _Outcome(NamedTuple):
    """The outcome of reading a bookie, beside its rows."""

    findings: list[Finding]
    unknown_count: int  # ids of --live-ledgers that its index does not have
    shares: BookieShares | None = None  # of owners, if --by sums up by owner


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directories(parser)
    add = parser.add_argument
    add(
        "--by",
        choices=_ROW_KINDS,
        default="bookie",
        help="what each row stands for (default: bookie); topic, namespace, tenant and component "
        "sum up all DIRs by the owners in --metadata",
    )
    add(
        "--detail",
        action="store_true",
        help="show all numbers of each bookie, one a line, instead of a row and a total",
    )
    add(
        "--bytes",
        action="store_true",
        help="show sizes in bytes, as formats other than tables always do",
    )
    add(
        "--live-ledgers",
        metavar="FILE",
        type=Path,
        help="file of the ledgers to keep, one id per line; all others are garbage "
        "(default: keep those in the index, with --metadata those of them in the metadata)",
    )
    add(
        "--threshold",
        metavar="PART",
        type=float,
        default=_MAJOR_THRESHOLD,
        help="logs with a smaller live part would be compacted "
        f"(default {_MAJOR_THRESHOLD:g}, a bookie's major compaction)",
    )
    add(
        "--pinned",
        metavar="PART",
        type=float,
        default=_MINOR_THRESHOLD,
        help=f"a log with a smaller live part counts as pinned (default {_MINOR_THRESHOLD:g})",
    )
    _add_readers(parser)
    add_owner_filters(parser, "for --by topic and others, owners as columns, and the filters below")
    add_output(parser, None)
    parser.checks += (_check_options,)


def _add_readers(parser: Parser) -> None:
    """Add the arguments of ``--by cache``."""
    parser.add_argument(
        "--readers",
        metavar="N",
        type=int,
        default=1,
        help="with --by cache: number of readers that read whole ledgers at once (default 1)",
    )
    parser.add_argument(
        "--read-ahead",
        metavar="N",
        type=int,
        default=_READ_AHEAD,
        help=f"with --by cache: number of entries read ahead (default {_READ_AHEAD})",
    )


def _check_options(parser: Parser, args: argparse.Namespace) -> None:
    """End with a usage error if the options contradict each other."""
    problem = describe_column_problem(args.columns or [], _requested_schema(args).names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")
    if args.by in _OWNER_KINDS and args.metadata is None:
        parser.error(f"argument --by: {args.by} requires --metadata METADATA")
    if describe_filters(args) and args.by not in (*_OWNER_KINDS, *_LEDGER_KINDS):
        kinds = ", ".join((*_OWNER_KINDS, *_LEDGER_KINDS))
        parser.error(f"argument --by: with filters by owner, one of {kinds}")
    if args.detail and args.by != "bookie":
        parser.error("argument --detail: requires --by bookie")
    if args.detail and args.columns:
        parser.error("argument --detail: shows all columns; omit --columns")


def _requested_schema(args: argparse.Namespace) -> Schema:
    """Return the schema of the rows: with owners for ledgers, if there are metadata."""
    from bkstore.cli.maintenance.usage_tables import TABLES_BY_KIND
    from bkstore.cli.owners.owner_columns import with_owner_columns
    from bkstore.tables import USAGE_BY_OWNER

    if args.by in _OWNER_KINDS:
        return USAGE_BY_OWNER
    schema = TABLES_BY_KIND[args.by].schema
    has_owners = args.metadata is not None and args.by in _LEDGER_KINDS
    return with_owner_columns(schema) if has_owners else schema


def run(args: argparse.Namespace) -> int:
    """Print the rows asked for by --by for each DIR, or for all together; the exit code is 1 if
    part of a directory could not be read, 2 if a whole one could not: it is left out, with a
    message; 3 if the filters choose nothing that is there."""
    from bkstore.cli.maintenance.owner_sums import owner_numbers
    from bkstore.cli.maintenance.screen_totals import DETAIL, for_screen
    from bkstore.cli.owners.ledger_choice import read_ledger_choice
    from bkstore.offline.usage import read_live_list

    live_ledgers = None if args.live_ledgers is None else read_live_list(args.live_ledgers)
    refuse_output_in(args, args.directories)
    choice = read_ledger_choice(args)
    if live_ledgers is None and choice is not None:
        live_ledgers = set(choice.owners.ledgers())
    numbers = owner_numbers(args, choice)  # the owners to sum up by, None for other rows
    fleet = Fleet(args.directories, partial(_read_bookie, args, live_ledgers, numbers), args.jobs)
    schema, counter = _requested_schema(args), RowCounter()
    is_screen = output_format_from_args(args) == "table"
    with work_progress("log" if fleet.is_single else "bookie") as show_progress:
        tables = fleet.tables(show_progress)
        tables = _with_owners(args, tables, fleet, choice, numbers, has_total=is_screen)
        tables = counter.count(tables)
        if is_screen:
            has_total = args.by == "bookie" and not (fleet.is_single or args.detail)
            tables = for_screen(tables, exact=args.bytes, has_total=has_total)
            schema = DETAIL if args.detail else schema
        write_output(args, schema, tables)
    if args.live_ledgers is not None:
        _print_unknown_ledgers(args, fleet)
    code = fleet.exit_code(fleet.report_findings(lambda outcome: outcome.findings))
    return code if choice is None else choice.report(code, is_empty=not counter.rows)


def _with_owners(
    args: argparse.Namespace,
    tables: Iterable[Table],
    fleet: Fleet[_Outcome],
    choice: LedgerChoice | None,
    numbers: OwnerNumbers | None,
    *,
    has_total: bool,
) -> Iterator[Table]:
    """Yield the tables; without ledger metadata (`choice` and `numbers` are None) unchanged.

    Of tables of ledgers only rows of the chosen ledgers are kept, with columns of their owners. If
    rows stand for owners, the only table has their sums over all directories, and with `has_total`
    a total."""
    from bkstore.cli.maintenance.owner_sums import keep_chosen, owner_table
    from bkstore.cli.owners.owner_columns import add_owners

    if choice is not None and args.by in _LEDGER_KINDS:
        if choice.chosen is not None:
            tables = keep_chosen(tables, choice.chosen)
        tables = add_owners(tables, choice.owners)
    yield from tables
    if numbers is not None:
        shares = (each.shares for _, each in fleet.outcomes if each.shares is not None)
        yield owner_table(numbers, shares, has_total=has_total)


def _print_unknown_ledgers(args: argparse.Namespace, fleet: Fleet[_Outcome]) -> None:
    for directory, outcome in fleet.outcomes:
        if outcome.unknown_count:
            unknown = format_count(outcome.unknown_count, "ledger")
            print_stderr(f"{directory}: its index lacks {unknown} of {args.live_ledgers}")


def _read_bookie(
    args: argparse.Namespace,
    live_ledgers: set[LedgerId] | None,
    numbers: OwnerNumbers | None,
    directory: Path,
    show_progress: ShowProgress | None,
) -> Generator[Table, None, _Outcome]:
    """Yield the tables of one bookie; return the outcome. With `numbers` (owners to sum up by)
    there are no tables, but the outcome has the owners' shares."""
    from bkstore.cli.maintenance.usage_tables import TABLES_BY_KIND
    from bkstore.offline.usage import Usage, bookie_shares

    shares = None
    with open_bookie(args, directory) as bookie:
        usage = Usage(bookie, live_ledgers, args.threshold, args.pinned, show_progress)
        if numbers is None:
            yield from TABLES_BY_KIND[args.by].tables(bookie, usage, args)
        else:
            shares = bookie_shares(usage, numbers)
        bookie.check_unchanged()
        return _Outcome(usage.findings, usage.live_ledgers.unknown_count, shares)
