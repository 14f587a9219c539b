"""bkstore check: consistency of index, entry logs, journals and states."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bkstore.cli.bookie.log_arguments import parse_log_id
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.ledger_options import add_ledger_options, only_ledger_from_args
from bkstore.cli.terminal.metadata_options import parse_metadata_location
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.counts import format_count
from bkstore.ids import LedgerId
from bkstore.offline.check import Check, CheckFinding, Coverage
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import CHECK_COVERAGE, CHECK_FINDINGS, Table

_ROWS_PER_TABLE = 1 << 10
_SEVERITY_NOUNS = {
    "damage": ("finding of damage", "findings of damage"),
    "oddity": ("oddity", "oddities"),
    "note": ("note", "notes"),
}


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    add_ledger_options(parser, "only the rows, the state and the records of this ledger")
    add = parser.add_argument
    add("--log", metavar="LOG", help="only this log: an id, decimal or with 0x, or <hex id>.log")
    add_digest_options(parser, "verify the digests of all records that the index has, of this type")
    add(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help="ledger metadata, as for audit: records of a ledger in them, but not in "
        "the index, are damage instead of garbage",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="processes that read logs (default: one per CPU; one for few bytes)",
    )
    add(
        "--coverage",
        action="store_true",
        help="print the coverage, one row per entry log; findings go to stderr",
    )
    add_output(parser, CHECK_FINDINGS)


def run(args: argparse.Namespace) -> int:
    """Print each finding, and to stderr what was checked and what was not; the exit code is 1 for
    damage and oddities, 0 without any, 3 if nothing was checked."""
    severity_counts: Counter[str] = Counter()
    with open_bookie(args, needs_index=False) as bookie, work_progress("records") as show_progress:
        check = _make_check(args, bookie)
        check.progress = show_progress
        findings = _count_severities(check, severity_counts)
        if args.coverage:
            for finding in findings:
                print_stderr(f"{finding.severity}: {finding}")
            write_output(args, CHECK_COVERAGE, [_coverage_table(check.coverage)])
        else:
            tables = tables_of_rows(CHECK_FINDINGS, map(_finding_row, findings), _ROWS_PER_TABLE)
            write_output(args, CHECK_FINDINGS, tables)
    return _print_coverage(check.coverage, severity_counts)


def _count_severities(check: Check, counts: Counter[str]) -> Iterator[CheckFinding]:
    for finding in check:
        counts[finding.severity] += 1
        yield finding


def _make_check(args: argparse.Namespace, bookie: BookieDir) -> Check:
    """Return the check that the arguments ask for; reads the ledger ids of --metadata."""
    ledger = only_ledger_from_args(args)
    live_ledgers: list[LedgerId] = []
    if args.metadata is not None:
        from bkstore.cluster.store.opening import opened_metadata

        with opened_metadata(args.metadata) as store:
            live_ledgers = store.ledgers()
    log_id = None if args.log is None else parse_log_id(args.log)
    password = password_from_args(args)
    return Check(bookie, args.digest_type, password, ledger, log_id, live_ledgers, args.jobs)


def _finding_row(finding: CheckFinding) -> tuple[Any, ...]:
    ids = (None, None) if finding.ledger is None else finding.ledger.signed
    entry_range = (finding.first_entry, finding.last_entry, finding.entries)
    description = (finding.severity, finding.kind, finding.detail)
    groups = None if finding.entry_set is None else finding.entry_set.groups.tolist()
    return (*description, finding.file, finding.offset, *ids, *entry_range, groups)


def _coverage_table(coverage: Coverage) -> Table:
    columns = {name: [getattr(log, name) for log in coverage.logs] for name in CHECK_COVERAGE.names}
    columns["unaccounted"] = [list(map(list, pairs)) for pairs in columns["unaccounted"]]
    return Table(CHECK_COVERAGE, columns)


def _print_coverage(coverage: Coverage, severity_counts: Counter[str]) -> int:
    for line in coverage.describe():
        print_stderr(line)
    problem_count = severity_counts["damage"] + severity_counts["oddity"]
    counts = ", ".join(
        format_count(severity_counts[severity], *nouns)
        for severity, nouns in _SEVERITY_NOUNS.items()
        if severity_counts[severity]
    )
    if problem_count or not coverage.is_empty:
        print_stderr(f"found: {counts}" if counts else "no problems in what was checked")
    return exit_code(findings=bool(problem_count), checked=not coverage.is_empty)
