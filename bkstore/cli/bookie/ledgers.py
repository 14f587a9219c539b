"""bkstore ledgers: the ledgers of a bookie directory, a row each."""

from __future__ import annotations

import argparse

from bkstore.cli.terminal.secrets import add_show_keys, hide_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    add_output,
    chosen_scope,
    open_bookie,
    report_findings,
)
from bkstore.cli.terminal.table_output import write_tables
from bkstore.index.api import Finding
from bkstore.storage.read_only.ledgers_table import ledger_tables
from bkstore.tables import LEDGERS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--ledger-scope-id", metavar="S", help="only this scope (default 0)")
    scope.add_argument("--all-scopes", action="store_true", help="ledgers of every scope")
    add_show_keys(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the `ledgers` table; damaged ledgers have nulls and a line on stderr.

    Keys are null unless they are asked for.
    """
    findings: list[Finding] = []
    with open_bookie(args) as bookie:
        scope = None if args.all_scopes else chosen_scope(args)
        tables = ledger_tables(bookie, findings, scope)
        if not args.show_keys:
            tables = map(hide_keys, tables)
        write_tables(LEDGERS, tables, args.format, args.output, private=args.show_keys)
        bookie.check_unchanged()
    return report_findings(findings)
