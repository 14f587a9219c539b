"""bkstore ledgers: the ledgers of bookie directories, one row each."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from bkstore.cli.fleet import Fleet, ShowProgress, add_directories
from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_columns import (
    add_owners,
    check_owner_columns,
    with_owner_columns,
)
from bkstore.cli.owners.owner_options import add_owner_filters
from bkstore.cli.owners.row_counter import RowCounter
from bkstore.cli.terminal.ledger_options import add_scope_options, scope_from_args
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import add_show_keys, hide_keys
from bkstore.cli.terminal.shared_options import open_bookie, refuse_output_in
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.read_only.ledgers_table import ledger_tables
from bkstore.tables import LEDGER_LIST, Table

_OWNED_SCHEMA = with_owner_columns(LEDGER_LIST)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directories(parser)
    add_scope_options(parser)
    add_show_keys(parser)
    add_owner_filters(parser, "for owners as columns, and for the filters below")
    add_output(parser, _OWNED_SCHEMA)
    parser.checks += (check_owner_columns,)


def run(args: argparse.Namespace) -> int:
    """Print a row for each ledger: nulls and a line on stderr for a damaged one; the exit code is 2
    if one of several directories could not be read, 3 if none has a ledger that the filters
    choose."""
    scope = None if args.all_scopes else scope_from_args(args)
    refuse_output_in(args, args.directories)
    choice = read_ledger_choice(args)
    chosen = None if choice is None else choice.ledgers
    fleet = Fleet(args.directories, partial(_read_bookie, args, scope, chosen), args.jobs)
    counter = RowCounter()
    with nullcontext() if fleet.is_single else work_progress("bookie") as show_progress:
        tables, schema = counter.count(fleet.tables(show_progress)), LEDGER_LIST
        if choice is not None:
            tables, schema = add_owners(tables, choice.owners), _OWNED_SCHEMA
        write_output(args, schema, tables, private=args.show_keys)
    code = fleet.exit_code(fleet.report_findings(lambda findings: findings))
    return code if choice is None else choice.report(code, is_empty=not counter.rows)


def _read_bookie(
    args: argparse.Namespace,
    scope: int | None,
    chosen: frozenset[LedgerId] | None,
    directory: Path,
    _: ShowProgress | None,
) -> Generator[Table, None, list[Finding]]:
    """Yield the tables of one bookie, only `chosen` ledgers unless that is None; return the
    findings. One bookie shows no progress."""
    findings: list[Finding] = []
    with open_bookie(args, directory) as bookie:
        parts = ledger_tables(bookie, findings, scope, chosen)
        for table in map(_with_explicit_lac_entries, parts):
            yield table if args.show_keys else hide_keys(table)
        bookie.check_unchanged()
    return findings


def _with_explicit_lac_entries(table: Table) -> Table:
    """Return the table with a column of the entry id that each explicit LAC names, null if it names
    none, and all columns in the order of `LEDGER_LIST`."""
    bodies = table.columns["explicit_lac"]
    entries = [explicit_lac_or_none(body) if body else None for body in bodies]
    columns = {**table.columns, "explicit_lac_entry": entries}
    return Table(LEDGER_LIST, {name: columns[name] for name in LEDGER_LIST.names})
