"""bkstore readjournal: the records of journal files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bkstore.cli.terminal.metadata_options import (
    add_payload_digests,
    opened_digest_types,
    print_digest_types,
)
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_show_keys, hide_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    check_unchanged_at_end,
    open_bookie,
    report_findings,
    report_unreadable,
)
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.counts import format_count
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.entry import DigestTypes, explicit_lac_or_none
from bkstore.formats.journal import SPECIAL_VERSIONS, JournalRecord, decode_record
from bkstore.formats.state_checks import explicit_lac_oddity, master_key_oddity
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal.last_mark import JOURNAL_SUFFIX, list_journal_files
from bkstore.storage.journal.scan import JournalScan, scan_journal
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import JOURNAL_RECORDS, Table

_ROWS_PER_TABLE = 1 << 12
_LENGTH_BYTES = 4  # before each record


class _Journal(NamedTuple):
    """A journal file: the number of its journal directory, its id and its path."""

    dir_index: int
    journal_id: int
    path: Path


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add = parser.add_argument
    add(
        "journal",
        metavar="JOURNAL",
        nargs="?",
        help="a decimal id or a file name <hex id>.txn (default: all files)",
    )
    add("--journal-dir", metavar="N", type=int, help="number of the journal directory, from 0")
    add("-m", "--msg", action="store_true", help="include the payloads")
    add_payload_digests(parser)
    add_show_keys(parser)
    add_output(parser, JOURNAL_RECORDS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each record; torn and damaged records are reported on stderr."""
    if args.directory.is_file() and args.directory.suffix == JOURNAL_SUFFIX:
        return _run_file(args)
    with open_bookie(args, needs_index=False) as bookie:
        files = _chosen_files(bookie.folders.journal, args.journal, args.journal_dir)
        findings = _write_records(files, args, bookie)
    return report_findings(findings)


def _run_file(args: argparse.Namespace) -> int:
    """Print the records of the journal file that was given as DIR."""
    path: Path = args.directory
    if args.journal is not None or args.journal_dir is not None:
        raise InvalidArgument(f"{path} is a journal file: omit JOURNAL and --journal-dir")
    if args.output is not None:
        refuse_inputs(args.output, [path.resolve().parent])
    file = _Journal(dir_index=0, journal_id=_parse_journal_id(path.name), path=path)
    return report_findings(_write_records([file], args))


def _write_records(
    files: list[_Journal], args: argparse.Namespace, bookie: BookieDir | None = None
) -> list[Finding]:
    """Write the records of the journal files; return findings. Master keys only if asked for."""
    findings: list[Finding] = []
    with opened_digest_types(args) as digest_types:
        tables = _record_tables(files, digest_types if args.msg else None, findings)
        if not args.show_keys:
            tables = map(hide_keys, tables)
        tables = check_unchanged_at_end(tables, bookie)
        write_output(args, JOURNAL_RECORDS, tables, private=args.show_keys)
    print_digest_types(digest_types, args)
    return findings


def _chosen_files(
    journal_dirs: list[Path], journal: str | None, dir_index: int | None
) -> list[_Journal]:
    """Return the chosen files, all without JOURNAL; `InvalidArgument` if none or several match."""
    if dir_index is not None and not 0 <= dir_index < len(journal_dirs):
        count = format_count(len(journal_dirs), "is", "are")
        raise InvalidArgument(f"--journal-dir {dir_index}: {count} here, from 0 on")
    dir_indexes = range(len(journal_dirs)) if dir_index is None else [dir_index]
    files = [
        _Journal(index, *journal_id_and_path)
        for index in dir_indexes
        for journal_id_and_path in list_journal_files(journal_dirs[index])
    ]
    if journal is None:
        return files
    journal_id = _parse_journal_id(journal)
    matching_files = [file for file in files if file.journal_id == journal_id]
    if not matching_files:
        raise InvalidArgument(f"no journal file {journal_id} ({journal_id:x}.txn) is here")
    if len(matching_files) > 1:
        paths = ", ".join(str(file.path) for file in matching_files)
        raise InvalidArgument(f"several journal files {journal}: {paths}; give --journal-dir")
    return matching_files


def _parse_journal_id(text: str) -> int:
    """Return the journal id in a decimal number, or in a file name, which has it in hex."""
    if re.fullmatch(r"[0-9a-fA-F]{1,16}\.txn", text):
        return int(text.removesuffix(JOURNAL_SUFFIX), 16)
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    raise InvalidArgument(f"not a journal: {text[:60]!r} (a decimal id or <hex id>.txn)")


def _record_tables(
    files: list[_Journal], digest_types: DigestTypes | None, findings: list[Finding]
) -> Iterator[Table]:
    """Yield the rows of all files, with payloads if there are `digest_types`."""
    for file in files:
        try:
            scan = scan_journal(file.path, skip_invalid=True)
            rows = _record_rows(file, scan, findings)
            if digest_types is None:
                cells: Iterator[tuple[Any, ...]] = ((*row, None) for row, _ in rows)
            else:
                cells = _rows_with_payloads(rows, digest_types)
            yield from tables_of_rows(JOURNAL_RECORDS, cells, _ROWS_PER_TABLE)
            findings += scan.findings
        except CorruptionError as error:
            report_unreadable(error, findings, is_only_file=len(files) == 1)


def _rows_with_payloads(
    rows: Iterator[tuple[tuple[Any, ...], JournalRecord]], digest_types: DigestTypes
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with the payloads of their records, a batch at a time."""
    while batch := list(islice(rows, _ROWS_PER_TABLE)):
        payloads = _payloads([record for _, record in batch], digest_types)
        yield from ((*row, payload) for (row, _), payload in zip(batch, payloads))


def _payloads(records: list[JournalRecord], digest_types: DigestTypes) -> list[bytes | None]:
    """Return the payload of each added entry, without its digest, and the bodies of unknown
    records; None for the others."""
    payloads = [record.body if record.kind == "unknown" else None for record in records]
    adds_of_ledger: dict[LedgerId, list[int]] = {}
    for number, record in enumerate(records):
        if record.kind == "add":
            adds_of_ledger.setdefault(record.ledger, []).append(number)
    for ledger, numbers in adds_of_ledger.items():
        bodies = [records[number].body for number in numbers]
        for number, payload in zip(numbers, digest_types.payloads(ledger, bodies)):
            payloads[number] = payload
    return payloads


def _record_rows(
    file: _Journal, scan: JournalScan, findings: list[Finding]
) -> Iterator[tuple[tuple[Any, ...], JournalRecord]]:
    """Yield the cells of each record of a file but its payload, and the record; append one finding
    for consecutive records with the same problem (`DamageRuns` joins them)."""
    file_cells = (file.path.name, file.dir_index, file.journal_id, scan.version)
    damage_runs = DamageRuns(findings)
    for offset, record_bytes in scan:
        try:
            record = decode_record(record_bytes)
        except CorruptionError as error:
            # The error counts from the record's first byte, which follows its length.
            damage_runs.add(Finding.of(error.relocate(file.path, offset + _LENGTH_BYTES)))
            continue
        problem = _find_problem(record, scan.version)
        if problem is None:
            damage_runs.end_runs()  # later problems are findings of their own
        else:
            damage_runs.add(Finding(*problem, str(file.path), offset, record.ledger))
        yield (*file_cells, offset, *_record_cells(record, len(record_bytes))), record


def _find_problem(
    record: JournalRecord, version: int
) -> tuple[Literal["damage", "oddity"], str] | None:
    """Return (severity, message) of a readable record that is wrong, None if it is fine."""
    kind = record.kind
    # Some kinds are allowed only from a version of the file on, the others from the first.
    if version < SPECIAL_VERSIONS.get(kind, 1):
        return "damage", f"{kind} record in a file of version {version}: no bookie can read it"
    oddity = None
    if kind == "explicit_lac":
        oddity = explicit_lac_oddity(record.ledger, record.body)
    elif kind == "master_key":
        oddity = master_key_oddity(record.body)
    return None if oddity is None else ("oddity", oddity)


def _record_cells(record: JournalRecord, size: int) -> tuple[Any, ...]:
    """Return the cells of a record but its payload; what its kind does not have is null."""
    master_key = explicit_lac = None
    if record.kind == "master_key":
        master_key = record.body
    elif record.kind == "explicit_lac":
        explicit_lac = record.body
    # The columns of `JOURNAL_RECORDS` from `kind` on, in its order.
    ids = (record.kind, *record.ledger.signed, record.entry_id)
    lac_entry = None if explicit_lac is None else explicit_lac_or_none(explicit_lac)
    state_cells = (master_key, explicit_lac, lac_entry)
    return (*ids, size, record.lac, record.length, *state_cells)
