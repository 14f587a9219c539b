"""bkstore salvage: all readable records of damaged entry logs, as a new bookie's directory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bkstore.cli.maintenance.rewrite_arguments import add_rewrite_arguments, run_rewrite
from bkstore.cli.terminal.output_options import write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.tables import LOSSES, Table

if TYPE_CHECKING:
    from bkstore.offline.rewrite import Loss, SalvageResult


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_rewrite_arguments(parser, LOSSES, needs_to=False)
    parser.add_argument(
        "--known-only",
        action="store_true",
        help="leave out ledgers unknown to the bookie: deleted ones, or ones lost from "
        "a damaged index",
    )
    add_digest_options(parser, "leave out records whose digest of this type does not match")


def run(args: argparse.Namespace) -> int:
    """Salvage and print a row for each loss; the exit code is 1 for losses and damage."""
    from bkstore.offline.rewrite import salvage

    digest = {"digest_type": args.digest_type, "password": password_from_args(args)}
    result = run_rewrite(args, salvage, known_only=args.known_only, **digest)
    write_output(
        args, LOSSES, [Table.from_rows(LOSSES, [_loss_row(loss) for loss in result.losses])]
    )
    print_stderr(_describe_result(result))
    return max(report_findings(result.rewrite.findings), int(bool(result.losses)))


def _loss_row(loss: Loss) -> tuple[Any, ...]:
    """Return a row of the table of losses."""
    ids = (None, None) if loss.ledger is None else loss.ledger.signed
    entry_range = (loss.first_entry, loss.last_entry, loss.entries)
    groups = None if loss.entry_set is None else loss.entry_set.groups.tolist()
    location = (loss.kind, loss.file, loss.offset, loss.bytes)
    return (*location, *ids, *entry_range, loss.detail, groups)


def _describe_result(result: SalvageResult) -> str:
    """Return one line about the new directory and the losses."""
    rewrite = result.rewrite
    ledgers = format_count(rewrite.ledgers, "ledger")
    saved = f"{format_count(rewrite.entries, 'entry', 'entries')} of {ledgers}"
    logs = f"{format_count(rewrite.logs, 'entry log')}, {result.rewritten_logs} rewritten"
    lost = (
        f"lost: {format_count(result.lost_entries, 'entry', 'entries')} that the old index had, "
        f"{format_count(result.lost_bytes, 'byte')} of entry logs"
    )
    return f"{rewrite.target}: {saved} ({rewrite.layout}) in {logs}; {lost}"
