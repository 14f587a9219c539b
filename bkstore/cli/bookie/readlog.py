"""bkstore readlog: the records of entry logs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bkstore.cli.bookie.log_arguments import add_log_arguments, open_logs
from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_options import add_owner_filters, describe_filters
from bkstore.cli.terminal.ledger_options import (
    add_ledger_options,
    index_has_ledger,
    ledger_from_args,
)
from bkstore.cli.terminal.metadata_options import (
    add_payload_digests,
    opened_digest_types,
    print_digest_types,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import (
    check_unchanged_at_end,
    report_findings,
    report_unreadable,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import DigestTypes, rows_of_ledgers
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import LogBatch, scan_log
from bkstore.tables import LOG_RECORDS, ConstantColumn, Table

ROWS_PER_TABLE = 1 << 12


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_log_arguments(parser)
    add_ledger_options(parser)
    add = parser.add_argument
    add("--entry-id", metavar="E", type=int, help="only this entry of the ledger")
    add("--start-pos", metavar="P", type=int, help="only records that reach to this offset")
    add("--end-pos", metavar="P", type=int, help="only records that begin at or before this offset")
    add("-m", "--msg", action="store_true", help="include the payloads")
    add_payload_digests(parser)
    add_owner_filters(parser)
    add_output(parser, LOG_RECORDS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each record, damage to stderr; return 1 for damage or an unknown ledger, 3 if
    no record is of a ledger that the filters choose."""
    ledger = None
    if args.ledger_id is not None or args.ledger_qualified_name is not None:
        ledger = ledger_from_args(args)
    elif args.entry_id is not None or args.ledger_scope_id is not None:
        raise InvalidArgument("--entry-id and --ledger-scope-id need a ledger")
    choice = read_ledger_choice(args) if describe_filters(args) else None
    chosen = None if choice is None else choice.ledgers
    if ledger is not None:
        chosen = frozenset((ledger,))
    findings: list[Finding] = []
    ledgers_in_logs: set[LedgerId] = set()  # those of the chosen
    with open_logs(args) as (bookie, logs), opened_digest_types(args) as digest_types:
        tables = _record_tables(logs, args, chosen, findings, ledgers_in_logs, digest_types)
        write_output(
            args,
            LOG_RECORDS,
            check_unchanged_at_end(tables, bookie),
            reports_no_rows=lambda: chosen is None or bool(ledgers_in_logs),
        )
        # A ledger without records is not unknown if the index has it.
        is_indexed = False
        if ledger is not None and bookie is not None and not ledgers_in_logs:
            is_indexed = index_has_ledger(bookie, ledger)
    print_digest_types(digest_types, args)
    code = report_findings(findings)
    if choice is not None:
        return choice.report(code, is_empty=not ledgers_in_logs)
    if ledger is None or ledgers_in_logs:
        return code
    print_stderr(f"no entry log read here has a record of ledger {ledger}")
    return code if is_indexed else 1


def _record_tables(
    logs: list[LogFile],
    args: argparse.Namespace,
    chosen: frozenset[LedgerId] | None,
    findings: list[Finding],
    ledgers_in_logs: set[LedgerId],
    digest_types: DigestTypes,
) -> Iterator[Table]:
    """Yield the rows of all logs, or of the chosen ledgers' records. Append to `findings`, and add
    to `ledgers_in_logs` the chosen ledgers that have a record, also one that --entry-id leaves
    out."""
    is_chosen = None
    if chosen is not None:

        def is_chosen(ledger_id: LedgerId) -> bool:
            is_wanted = ledger_id in chosen
            if is_wanted:
                ledgers_in_logs.add(ledger_id)
            return is_wanted

    for log in logs:
        try:
            for batch in scan_log(log.path, findings, is_chosen):
                selected = _select_records(batch, args)
                for start in range(0, len(selected), ROWS_PER_TABLE):
                    rows = selected.where(
                        np.arange(start, min(start + ROWS_PER_TABLE, len(selected)))
                    )
                    yield _record_table(log, rows, digest_types if args.msg else None)
        except CorruptionError as error:
            report_unreadable(error, findings, is_only_file=len(logs) == 1)


def _select_records(batch: LogBatch, args: argparse.Namespace) -> LogBatch:
    """Return records of --entry-id that, with size field, overlap --start-pos..--end-pos."""
    keep = np.ones(len(batch), np.bool_)
    if args.entry_id is not None:
        keep &= batch.entry_id == args.entry_id
    if args.start_pos is not None:
        keep &= batch.position + batch.size > args.start_pos
    if args.end_pos is not None:
        keep &= batch.position - SIZE_FIELD_BYTES <= args.end_pos
    return batch if keep.all() else batch.where(np.flatnonzero(keep))


def _record_table(log: LogFile, batch: LogBatch, digest_types: DigestTypes | None) -> Table:
    """Return the rows of records, with payloads if there are `digest_types`."""
    count = len(batch)
    lacs, lengths = batch.lac_and_length()
    columns = (  # of `LOG_RECORDS`, in its order
        ConstantColumn(log.dir_index, count),
        ConstantColumn(log.log_id, count),
        ConstantColumn(Path(log.path).name, count),
        batch.position - SIZE_FIELD_BYTES,
        batch.position,
        batch.scope_id,
        batch.ledger_id,
        batch.entry_id,
        lacs,
        lengths,
        batch.size,
        ConstantColumn(None, count) if digest_types is None else _payloads(batch, digest_types),
    )
    return Table(LOG_RECORDS, dict(zip(LOG_RECORDS.names, columns)))


def _payloads(batch: LogBatch, digest_types: DigestTypes) -> list[bytes | None]:
    """Return the payload of each record, None where the digest type is not known."""
    payloads: list[bytes | None] = [None] * len(batch)
    for ledger, rows in rows_of_ledgers(batch.scope_id, batch.ledger_id):
        records = [batch.record(row) for row in rows.tolist()]
        for row, payload in zip(rows.tolist(), digest_types.payloads(ledger, records)):
            payloads[row] = payload
    return payloads
