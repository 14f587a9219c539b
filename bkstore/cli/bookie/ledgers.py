"""bkstore ledgers: the ledgers of a bookie directory, one row each."""

from __future__ import annotations

import argparse

from bkstore.cli.terminal.ledger_options import add_scope_options, scope_from_args
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_show_keys, hide_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    open_bookie,
    report_findings,
)
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.index.api import Finding
from bkstore.storage.read_only.ledgers_table import ledger_tables
from bkstore.tables import LEDGER_LIST, Table


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_scope_options(parser)
    add_show_keys(parser)
    add_output(parser, LEDGER_LIST)


def run(args: argparse.Namespace) -> int:
    """Print a row for each ledger: nulls and a line on stderr for a damaged one."""
    findings: list[Finding] = []
    with open_bookie(args) as bookie:
        scope = None if args.all_scopes else scope_from_args(args)
        tables = map(_with_explicit_lac_entries, ledger_tables(bookie, findings, scope))
        if not args.show_keys:
            tables = map(hide_keys, tables)
        checked_tables = check_unchanged_at_end(tables, bookie)
        write_output(args, LEDGER_LIST, checked_tables, private=args.show_keys)
    return report_findings(findings)


def _with_explicit_lac_entries(table: Table) -> Table:
    """Return `ledgers` with the entry id that each explicit LAC names, null if it names none."""
    bodies = table.columns["explicit_lac"]
    entries = [explicit_lac_or_none(body) if body else None for body in bodies]
    columns = {**table.columns, "explicit_lac_entry": entries}
    return Table(LEDGER_LIST, {name: columns[name] for name in LEDGER_LIST.names})
