"""bkstore readledger: the entries of one ledger, as they are stored."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    ledger_from_args,
    print_unknown_ledger,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    open_bookie,
    report_findings,
)
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import Coder, RecordBatch, record_header
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId, check_entry_id, split_location
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import ENTRY_RECORDS, Table


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_argument(parser)
    add = parser.add_argument
    add("--first", metavar="E", type=int, default=0, help="first entry (0)")
    add("--last", metavar="E", type=int, help="last entry (the ledger's last)")
    add(
        "--max-count",
        metavar="N",
        type=int,
        help="return one batch read from --first: at most N entries, up to a gap",
    )
    add("--max-size", metavar="BYTES", type=int, help="the same: at most so many bytes of frame")
    add_digest_options(parser, "verify the digests, of this type")
    add_output(parser, ENTRY_RECORDS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each entry; entries that cannot be read or verified go to stderr."""
    ledger = ledger_from_args(args)
    first, last = check_entry_id(args.first), args.last
    if last is not None and last < first:
        raise InvalidArgument(f"--last {last} is less than --first {first}")
    password, coder = password_from_args(args), None
    if args.digest_type is not None:
        coder = Coder(args.digest_type, password)
    elif password is not None:
        raise InvalidArgument("a password requires --digest-type")
    findings: list[Finding] = []
    with open_bookie(args) as bookie:
        batches = _read_batches(bookie, ledger, args, findings)
        tables = _entry_tables(bookie, ledger, batches, coder, findings)
        is_known = bookie.index.has_ledger(ledger)
        write_output(args, ENTRY_RECORDS, check_unchanged_at_end(tables, bookie))
    unknown = 0 if is_known else print_unknown_ledger(ledger)
    return report_findings(findings) or unknown


def _read_batches(
    bookie: BookieDir, ledger: LedgerId, args: argparse.Namespace, findings: list[Finding]
) -> Iterator[RecordBatch]:
    """Yield the records asked for, with --max-count or --max-size the one batch that a batch read
    returns; append to `findings` what cannot be read."""
    if args.max_count is None and args.max_size is None:
        yield from bookie.scan_ledger(ledger, args.first, args.last, findings)
        return
    max_count = args.max_count or 0  # 0 = no limit, as of the size
    if args.last is not None:
        entry_count = args.last - args.first + 1
        max_count = min(max_count, entry_count) if max_count else entry_count
    batch = bookie.read_entries(ledger, args.first, max_count, args.max_size or 0)
    yield batch
    if batch.stopped is not None:  # by damage of the entry after the last one
        stopped_entry = np.array([args.first + len(batch)], np.int64)
        DamageRuns(findings).add(Finding.of(batch.stopped, ledger), stopped_entry)


def _entry_tables(
    bookie: BookieDir,
    ledger: LedgerId,
    batches: Iterator[RecordBatch],
    coder: Coder | None,
    findings: list[Finding],
) -> Iterator[Table]:
    """Yield a table per batch; append to `findings` runs of entries that `coder` refuses."""
    damage_runs = DamageRuns(findings)
    for batch in batches:
        if len(batch):
            locations = bookie.index.get_many(ledger, batch.entries)
            dir_indexes = bookie.dir_indexes(ledger, locations)
            entry_places = zip(batch.entries.tolist(), dir_indexes.tolist(), locations.tolist())
            rows = [
                _entry_row(ledger, entry_place, record, coder, damage_runs)
                for entry_place, record in zip(entry_places, map(bytes, batch))
            ]
            yield Table.from_rows(ENTRY_RECORDS, rows)


def _entry_row(
    ledger: LedgerId,
    entry_place: tuple[int, int, int],
    record: bytes,
    coder: Coder | None,
    damage_runs: DamageRuns,
) -> tuple[Any, ...]:
    """Return the row of a record at `entry_place` (entry id, dir_index, location). A `coder`
    verifies its digest, which the payload else includes; damage is added to `damage_runs`."""
    entry_id, dir_index, location = entry_place
    log_id, position = split_location(location)
    header = record_header(record)
    payload, is_verified = record[header.size :], None
    if coder is not None:
        payload = payload[coder.digest.size :]
        is_verified = True
        try:
            coder.decode(record, ledger, entry_id)
            damage_runs.end_runs()  # later damage is a finding of its own
        except CorruptionError as error:
            is_verified = False
            damage = Finding("damage", error.reason, log_name(log_id), position, ledger)
            damage_runs.add(damage, np.array([entry_id], np.int64))
    sizes = (len(record), header.lac, header.length)
    return (*ledger.signed, entry_id, dir_index, log_id, position, *sizes, is_verified, payload)
