"""bkstore readledger: the entries of one ledger, or the headers of Pulsar's messages in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.cli.owners.ledger_choice import read_ledger_choice
from bkstore.cli.owners.owner_options import add_ledger_or_filters, describe_filters
from bkstore.cli.terminal.ledger_options import (
    add_ledger_argument,
    ledger_from_args,
    print_unknown_ledger,
)
from bkstore.cli.terminal.metadata_options import add_digest_metadata, opened_digests
from bkstore.cli.terminal.output_options import (
    add_output,
    describe_column_problem,
    write_output,
)
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    open_bookie,
    report_findings,
)
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import Coder, DigestTrial, RecordBatch, find_digest_type, record_header
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId, check_entry_id, split_location
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns, add_unreported
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import ENTRY_RECORDS, PULSAR_ENTRIES, Schema, Table

if TYPE_CHECKING:
    from bkstore.cli.pulsar.entry_rows import PulsarEntryRows


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_argument(parser, is_required=False)
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
    add(
        "--as",
        dest="kind",
        choices=["pulsar"],
        help="show the headers of the messages in the entries of an Apache Pulsar topic: publish "
        "time, producer, sequence id and others, without their payloads",
    )
    add("--payload", action="store_true", help="with --as: show the payloads, too, as stored")
    add_digest_options(parser, "the type of the digests to verify (default: found by trial)")
    add_digest_metadata(parser)
    add_ledger_or_filters(parser)
    add_output(parser, None)
    parser.checks += (_check_columns,)


def _check_columns(parser: Parser, args: argparse.Namespace) -> None:
    """Exit with a usage error for columns that the table does not have."""
    problem = describe_column_problem(args.columns or [], _schema(args).names)
    if problem is not None:
        parser.error(f"argument --columns: {problem}")
    if args.payload and args.kind is None:
        parser.error("argument --payload: is for --as pulsar; payloads are shown without --as")


def _schema(args: argparse.Namespace) -> Schema:
    return ENTRY_RECORDS if args.kind is None else PULSAR_ENTRIES


def run(args: argparse.Namespace) -> int:
    """Print a row for each entry of the ledger, or of those that the filters choose, one after the
    other; entries that cannot be read or verified go to stderr."""
    first, last = check_entry_id(args.first), args.last
    if last is not None and last < first:
        raise InvalidArgument(f"--last {last} is less than --first {first}")
    choice = read_ledger_choice(args) if describe_filters(args) else None
    password = password_from_args(args)
    findings: list[Finding] = []
    notes: dict[str, None] = {}  # on digest types, each once, in order
    with open_bookie(args) as bookie, opened_digests(args.metadata) as read_digest:
        if choice is None or choice.ledgers is None:
            ledgers = [ledger_from_args(args)]
        else:
            listing = bookie.index.list_readable_ledgers()
            ledgers = [each for each in listing.ledgers if each in choice.ledgers]
            findings += listing.findings

        def ledger_tables(ledger: LedgerId) -> Iterator[Table]:
            """Yield the rows of a ledger, whose digest type is given, in the metadata, or found."""
            digest = _LedgerDigest(password)
            if args.digest_type is not None:
                digest.coder = Coder(args.digest_type, password)
            else:
                digest.take_metadata(*read_digest(ledger))
            yield from _ledger_tables(bookie, ledger, args, digest, findings)
            if digest.note:
                notes[digest.note] = None

        # For a ledger that the index does not have, the message below is printed instead.
        known_ledgers = [each for each in ledgers if _may_be_known(bookie, each, findings)]
        tables = chain.from_iterable(map(ledger_tables, ledgers))
        write_output(
            args,
            _schema(args),
            check_unchanged_at_end(tables, bookie),
            reports_no_rows=lambda: bool(known_ledgers),
        )
    for note in notes:
        print_stderr(note)
    if choice is not None:
        return choice.report(report_findings(findings), is_empty=not ledgers)
    unknown = 0 if known_ledgers else print_unknown_ledger(ledgers[0])
    return report_findings(findings) or unknown


def _ledger_tables(
    bookie: BookieDir,
    ledger: LedgerId,
    args: argparse.Namespace,
    digest: _LedgerDigest,
    findings: list[Finding],
) -> Iterator[Table]:
    """Yield the rows of a ledger's entries, or of Pulsar's messages in them."""
    batches = _read_batches(bookie, ledger, args, findings)
    pulsar_rows = None
    if args.kind is not None:
        from bkstore.cli.pulsar.entry_rows import PulsarEntryRows

        pulsar_rows = PulsarEntryRows(ledger, findings, with_payload=args.payload)
    yield from _entry_tables(bookie, ledger, batches, digest, findings, pulsar_rows)


def _may_be_known(bookie: BookieDir, ledger: LedgerId, findings: list[Finding]) -> bool:
    """Return whether the index has the ledger, or damage, which is added to the findings, hides
    whether it has."""
    try:
        return bookie.index.has_ledger(ledger)
    except CorruptionError as error:
        add_unreported(findings, [Finding.of(error, ledger)])
        return True


class _LedgerDigest:
    """The digests of the ledger's records: `coder` verifies them, unless it is None; `size` bytes
    before each payload are its digest. `note` names the assumed type; None if none was."""

    def __init__(self, password: bytes | None) -> None:
        self.coder: Coder | None = None
        self.note: str | None = None
        self._password = password
        self._unverified: DigestTrial | None = None  # the type, if its digests cannot be verified

    @property
    def size(self) -> int:
        if self.coder is not None:
            return self.coder.digest.size
        return 0 if self._unverified is None else self._unverified.digest_size

    @property
    def known_size(self) -> int | None:
        """As `size`, but None if the digest type is not known."""
        is_known = self.coder is not None or self._unverified is not None
        return self.size if is_known else None

    def take_metadata(self, digest_type: str | None, password: bytes | None) -> None:
        """Take the digest type from the ledger's metadata, if they have it."""
        if digest_type is None:
            return
        password = self._password if self._password is not None else password  # options precede
        if digest_type == "HMAC" and password is None:
            self._unverified = DigestTrial("HMAC", is_verified=False)
            self.note = f"digest type HMAC, from the metadata: {_NOT_VERIFIED}"
        else:
            self.coder = Coder(digest_type, password)

    def find(self, batch: RecordBatch) -> None:
        """Find the digest type by trial, unless it is known."""
        if self.coder is not None or self._unverified is not None or not len(batch):
            return
        trial = find_digest_type(map(bytes, batch), self._password)
        if trial is None:
            self.note = (
                "unknown digest type: the digest is shown as the beginning of each payload; "
                "pass --digest-type TYPE or --metadata METADATA"
            )
        elif trial.is_verified:
            self.coder = Coder(trial.digest_type, self._password)
            self.note = f"digest type {trial.digest_type}, found by trial: digests are verified"
        else:
            self._unverified = trial
            reason = "there is nothing to verify" if trial.digest_type == "DUMMY" else _NOT_VERIFIED
            self.note = f"digest type {trial.digest_type}, by the sizes of the records: {reason}"


# The indexes of these columns in a row.
_LOG_COLUMN, _POSITION_COLUMN, _BYTES_COLUMN, _DIGEST_COLUMN = map(
    ENTRY_RECORDS.names.index, ("log_id", "position", "bytes", "digest_ok")
)
_NOT_VERIFIED = "not verified without the ledger's password (--password-file FILE)"


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
    digest: _LedgerDigest,
    findings: list[Finding],
    pulsar_rows: PulsarEntryRows | None,
) -> Iterator[Table]:
    """Yield a table per batch, of payloads or of the headers of Pulsar's messages; append to
    `findings` the entries whose digests do not match."""
    mismatches = _DigestMismatches(ledger, findings)
    for batch in batches:
        if len(batch):
            digest.find(batch)
            locations = bookie.index.get_many(ledger, batch.entries)
            dir_indexes = bookie.dir_indexes(ledger, locations)
            entry_places = zip(batch.entries.tolist(), dir_indexes.tolist(), locations.tolist())
            rows = [
                _entry_row(ledger, entry_place, record, digest, mismatches)
                for entry_place, record in zip(entry_places, map(bytes, batch))
            ]
            mismatches.report()
            if pulsar_rows is None:
                yield Table.from_rows(ENTRY_RECORDS, rows)
            else:
                yield Table.from_rows(
                    PULSAR_ENTRIES, _pulsar_rows(batch, rows, digest, pulsar_rows)
                )


def _pulsar_rows(
    batch: RecordBatch,
    rows: list[tuple[Any, ...]],
    digest: _LedgerDigest,
    pulsar_rows: PulsarEntryRows,
) -> list[tuple[Any, ...]]:
    """Return the rows of `PULSAR_ENTRIES` for records with these rows of `ENTRY_RECORDS`: the
    columns that both have, up to `bytes` and `digest_ok`, and those of the messages."""
    record_places = [(log_name(row[_LOG_COLUMN]), row[_POSITION_COLUMN]) for row in rows]
    columns = pulsar_rows.columns(batch, digest.known_size, record_places)
    return [
        (*row[: _BYTES_COLUMN + 1], row[_DIGEST_COLUMN], *message)
        for row, message in zip(rows, columns)
    ]


def _entry_row(
    ledger: LedgerId,
    entry_place: tuple[int, int, int],
    record: bytes,
    digest: _LedgerDigest,
    mismatches: _DigestMismatches,
) -> tuple[Any, ...]:
    """Return the row of a record at `entry_place` (entry id, dir_index, location). The coder of
    `digest` verifies it, if there is one; a mismatch is added to `mismatches`."""
    entry_id, dir_index, location = entry_place
    log_id, position = split_location(location)
    header = record_header(record)
    is_verified = None
    if digest.coder is not None:
        is_verified = True
        try:
            digest.coder.decode(record, ledger, entry_id)
            mismatches.end_range()  # later damage is a finding of its own
        except CorruptionError as error:
            is_verified = False
            mismatches.add(entry_id, log_name(log_id), position, error.reason)
    # The columns of `ENTRY_RECORDS`, in its order.
    payload = record[header.size + digest.size :]
    sizes = (len(record), header.lac, header.length)
    return (*ledger.signed, entry_id, dir_index, log_id, position, *sizes, is_verified, payload)


class _DigestMismatches:
    """Collects consecutive entries whose digests do not match, and reports them together."""

    def __init__(self, ledger: LedgerId, findings: list[Finding]) -> None:
        self._ledger = ledger
        self._runs = DamageRuns(findings)  # joins what is reported batch by batch
        self._first: Finding | None = None  # of the entries not reported yet
        self._entries: list[int] = []
        self._last_position = 0

    def add(self, entry_id: int, file: str, position: int, reason: str) -> None:
        """Add an entry, in ascending order."""
        first = self._first
        if first is None or (first.file, first.detail) != (file, reason):
            self.report()
            self._first = Finding("damage", reason, file, position, self._ledger)
        self._entries.append(entry_id)
        self._last_position = position

    def end_range(self) -> None:
        """Report what was added: a good record follows."""
        self.report()
        self._runs.end_runs()

    def report(self) -> None:
        """Report what was added since the last call."""
        if self._first is not None:
            entries = np.array(self._entries, np.int64)
            self._runs.add(self._first, entries, self._last_position)
            self._first, self._entries = None, []
