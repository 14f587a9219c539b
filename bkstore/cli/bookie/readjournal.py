"""bkstore readjournal: the records of journal files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.secrets import add_show_keys, hide_keys
from bkstore.cli.terminal.shared_options import (
    add_directory,
    open_bookie,
    report_findings,
    until_unchanged,
)
from bkstore.counts import counted
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.user_outputs import refuse_inputs
from bkstore.formats.entry import explicit_lac_entry, record_header
from bkstore.formats.journal import SPECIAL_VERSIONS, JournalRecord, decode_record
from bkstore.formats.state_checks import explicit_lac_oddity, master_key_oddity
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal.last_mark import SUFFIX, journal_files
from bkstore.storage.journal.scan import JournalScan, scan_journal
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import JOURNAL_RECORDS, Table

ROWS_PER_TABLE = 1 << 12


class _File(NamedTuple):
    directory: int
    journal_id: int
    path: Path


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    parser.add_argument(
        "journal",
        metavar="JOURNAL",
        nargs="?",
        help="a decimal id or a file name <hex id>.txn (default: all files)",
    )
    parser.add_argument(
        "--journal-dir", metavar="N", type=int, help="number of the journal directory, from 0"
    )
    parser.add_argument("-m", "--msg", action="store_true", help="give the payloads too")
    add_show_keys(parser)
    add_output(parser, JOURNAL_RECORDS)


def run(args: argparse.Namespace) -> int:
    """Print a row for each record; what is torn or damaged goes to stderr."""
    if args.directory.is_file() and args.directory.suffix == SUFFIX:
        return _run_file(args)
    with open_bookie(args, needs_index=False) as bookie:
        files = _chosen(bookie.folders.journal, args.journal, args.journal_dir)
        findings = _print(files, args, bookie)
    return report_findings(findings)


def _run_file(args: argparse.Namespace) -> int:
    """Read one file that was given instead of a directory."""
    path: Path = args.directory
    if args.journal is not None or args.journal_dir is not None:
        raise InvalidArgument(f"{path} is a journal file: JOURNAL and --journal-dir say no more")
    if args.output is not None:
        refuse_inputs(args.output, [path.resolve().parent])
    return report_findings(_print([_File(0, _journal_id(path.name), path)], args))


def _print(
    files: list[_File], args: argparse.Namespace, bookie: BookieDir | None = None
) -> list[Finding]:
    findings: list[Finding] = []
    tables = _tables(files, args.msg, findings)
    if not args.show_keys:
        tables = map(hide_keys, tables)
    tables = until_unchanged(tables, bookie)
    write_output(args, JOURNAL_RECORDS, tables, private=args.show_keys)
    return findings


def _chosen(currents: list[Path], journal: str | None, directory: int | None) -> list[_File]:
    """Return the files that the arguments name; `InvalidArgument` if there is none."""
    if directory is not None and not 0 <= directory < len(currents):
        raise InvalidArgument(
            f"--journal-dir {directory}: {counted(len(currents), 'is', 'are')} here, from 0 on"
        )
    numbers = range(len(currents)) if directory is None else [directory]
    files = [_File(at, *found) for at in numbers for found in journal_files(currents[at])]
    if journal is None:
        return files
    wanted = _journal_id(journal)
    named = [file for file in files if file.journal_id == wanted]
    if not named:
        raise InvalidArgument(f"no journal file {wanted} ({wanted:x}.txn) is here")
    if len(named) > 1:
        where = ", ".join(str(file.path) for file in named)
        raise InvalidArgument(f"several journal files {journal}: {where}; give --journal-dir")
    return named


def _journal_id(text: str) -> int:
    """Return the id of a decimal number or of a name, as the bookie shell takes them."""
    if re.fullmatch(r"[0-9a-fA-F]{1,16}\.txn", text):
        return int(text.removesuffix(SUFFIX), 16)
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    raise InvalidArgument(f"not a journal: {text[:60]!r} (a decimal id or <hex id>.txn)")


def _tables(files: list[_File], payloads: bool, findings: list[Finding]) -> Iterator[Table]:
    """Yield the rows of all files in pieces; findings are added as they are met."""
    for file in files:
        scan = scan_journal(file.path, skip_invalid=True)
        rows: list[tuple[Any, ...]] = []
        for row in _rows(file, scan, payloads, findings):
            rows.append(row)
            if len(rows) == ROWS_PER_TABLE:
                yield Table.from_rows(JOURNAL_RECORDS, rows)
                rows = []
        if rows:
            yield Table.from_rows(JOURNAL_RECORDS, rows)
        findings.extend(scan.findings)


def _rows(
    file: _File, scan: JournalScan, payloads: bool, findings: list[Finding]
) -> Iterator[tuple[Any, ...]]:
    place = (file.path.name, file.directory, file.journal_id, scan.version)
    runs = DamageRuns(findings)
    for offset, data in scan:
        try:
            record = decode_record(data)
        except CorruptionError as error:
            runs.add(Finding.of(error.within(file.path, offset + 4)))
            continue
        odd = _oddity(record, scan.version)
        if odd is None:
            runs.end()
        else:
            runs.add(Finding(*odd, str(file.path), offset, record.ledger))
        yield (*place, offset, *_fields(record, len(data), payloads))


def _oddity(record: JournalRecord, version: int) -> tuple[Literal["damage", "oddity"], str] | None:
    """Return what is wrong with a record that can be read, None if nothing is."""
    if version < SPECIAL_VERSIONS.get(record.kind, 1):
        return "damage", f"{record.kind} record in a file of version {version}: no bookie reads it"
    if record.kind == "explicit_lac":
        why = explicit_lac_oddity(record.ledger, record.body)
    elif record.kind == "master_key":
        why = master_key_oddity(record.body)
    else:
        why = None
    return None if why is None else ("oddity", why)


def _fields(record: JournalRecord, size: int, payloads: bool) -> tuple[Any, ...]:
    payload = key = body = None
    if record.kind == "add" and payloads:
        payload = record.body[record_header(record.body).size :]
    elif record.kind == "unknown" and payloads:
        payload = record.body
    elif record.kind == "master_key":
        key = record.body
    elif record.kind == "explicit_lac":
        body = record.body
    return (
        record.kind,
        *record.ledger.signed,
        record.entry_id,
        size,
        record.lac,
        record.length,
        key,
        body,
        None if body is None else explicit_lac_entry(body),
        payload,
    )
