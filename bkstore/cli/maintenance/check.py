"""bkstore check: consistency of index, entry logs, journals and states."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bkstore.cli.bookie.log_arguments import parse_log_id
from bkstore.cli.fleet import Fleet, ShowProgress, add_directories
from bkstore.cli.maintenance.check_totals import (
    CheckOutcome,
    print_coverage,
    print_fleet_coverage,
)
from bkstore.cli.owners.ledger_choice import LedgerChoice, read_ledger_choice
from bkstore.cli.owners.owner_columns import (
    add_owners,
    check_owner_columns,
    with_owner_columns,
)
from bkstore.cli.owners.owner_options import add_owner_filters
from bkstore.cli.screen.column_choice import screen_columns
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.ledger_options import add_ledger_options, only_ledger_from_args
from bkstore.cli.terminal.metadata_options import parse_metadata_location
from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.secrets import add_digest_options, password_from_args
from bkstore.cli.terminal.shared_options import open_bookie, refuse_output_in
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import tables_of_rows
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwners
from bkstore.offline.check import Check, CheckFinding, Coverage
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import CHECK_COVERAGE, CHECK_FINDINGS, Schema, Table

_ROWS_PER_TABLE = 1 << 10


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directories(
        parser,
        "processes that read several DIRs, or the logs of one "
        "(default: one per CPU; one for few bytes)",
    )
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
    add_owner_filters(parser)
    add(
        "--coverage",
        action="store_true",
        help="print the coverage, one row per entry log; findings go to stderr",
    )
    add_output(parser, with_owner_columns(CHECK_FINDINGS))
    parser.checks += (check_owner_columns,)


def run(args: argparse.Namespace) -> int:
    """Print each finding, and to stderr what was checked and what was not. The exit code is 1 for
    damage and oddities, 0 without any, 2 if one of several directories could not be read, 3 if
    nothing was checked, or nothing of one of them."""
    refuse_output_in(args, args.directories)
    choice = read_ledger_choice(args)
    read = partial(_read_bookie, args, _CheckArguments.from_args(args, choice))
    fleet = Fleet(args.directories, read, args.jobs)
    schema = CHECK_COVERAGE if args.coverage else CHECK_FINDINGS
    with work_progress("record" if fleet.is_single else "bookie") as show_progress:
        tables = fleet.tables(show_progress)
        owners = None if choice is None else choice.owners
        if args.coverage:
            tables = _print_findings(tables, fleet, owners)
        elif owners is not None:
            tables, schema = add_owners(tables, owners), with_owner_columns(schema)
        write_output(args, _without_bookie(schema) if fleet.is_single else schema, tables)
    outcomes = [outcome for _, outcome in fleet.outcomes]
    if fleet.is_single:
        print_coverage(outcomes[0])
    else:
        print_fleet_coverage(fleet.outcomes, len(args.directories))
    has_problems = any(outcome.has_problems for outcome in outcomes)
    is_nothing = [outcome.coverage.is_empty for outcome in outcomes]
    if choice is None or choice.ledgers is None:
        is_checked = not any(is_nothing)
    else:  # a topic need not be on every bookie
        is_checked = not all(is_nothing)
    code = fleet.exit_code(exit_code(findings=has_problems, checked=is_checked))
    return code if choice is None else choice.report(code, is_empty=not is_checked)


@dataclass(frozen=True)
class _CheckArguments:
    """The arguments of `Check`, read once for all directories. `ledger` and `log_id` limit the
    check to one, `ledgers` to those that the filters choose; `live_ledgers` are those of the
    metadata."""

    digest_type: str | None
    password: bytes | None
    ledger: LedgerId | None
    log_id: int | None
    live_ledgers: list[LedgerId]
    jobs: int | None
    ledgers: frozenset[LedgerId] | None

    @classmethod
    def from_args(cls, args: argparse.Namespace, choice: LedgerChoice | None) -> _CheckArguments:
        """Return the options, with the ledgers of the metadata; reads the password. Of several
        directories, each is read by one process."""
        ledger = only_ledger_from_args(args)
        live_ledgers = [] if choice is None else choice.owners.ledgers()
        ledgers = None if choice is None else choice.ledgers
        log_id = None if args.log is None else parse_log_id(args.log)
        jobs = args.jobs if len(args.directories) == 1 else 1
        password = password_from_args(args)
        return cls(args.digest_type, password, ledger, log_id, live_ledgers, jobs, ledgers)

    def make_check(self, bookie: BookieDir) -> Check:
        """Return the check of a bookie."""
        return Check(
            bookie,
            self.digest_type,
            self.password,
            self.ledger,
            self.log_id,
            self.live_ledgers,
            self.jobs,
            ledgers=self.ledgers,
        )


def _read_bookie(
    args: argparse.Namespace,
    options: _CheckArguments,
    directory: Path,
    show_progress: ShowProgress | None,
) -> Generator[Table, None, CheckOutcome]:
    """Yield the findings of one bookie, and with --coverage its coverage as the last table."""
    severity_counts: Counter[str] = Counter()
    with open_bookie(args, directory, needs_index=False) as bookie:
        check = options.make_check(bookie)
        check.progress = show_progress
        rows = _finding_rows(bookie.bookie_id, check, severity_counts)
        yield from tables_of_rows(CHECK_FINDINGS, rows, _ROWS_PER_TABLE)
        if args.coverage:
            yield _coverage_table(bookie.bookie_id, check.coverage)
    return CheckOutcome(check.coverage, severity_counts)


def _finding_rows(
    bookie_id: str, findings: Iterable[CheckFinding], severity_counts: Counter[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each finding, and count it by its severity."""
    for finding in findings:
        severity_counts[finding.severity] += 1
        ids = (None, None) if finding.ledger is None else finding.ledger.signed
        entry_range = (finding.first_entry, finding.last_entry, finding.entries)
        description = (bookie_id, finding.severity, finding.kind, finding.detail)
        groups = None if finding.entry_set is None else finding.entry_set.groups.tolist()
        yield (*description, finding.file, finding.offset, *ids, *entry_range, groups)


def _coverage_table(bookie_id: str, coverage: Coverage) -> Table:
    """Return what was checked in each entry log, a row each."""
    log_columns = CHECK_COVERAGE.names[1:]
    columns = {name: [getattr(log, name) for log in coverage.logs] for name in log_columns}
    columns["unaccounted"] = [list(map(list, pairs)) for pairs in columns["unaccounted"]]
    return Table(CHECK_COVERAGE, {"bookie": [bookie_id] * len(coverage.logs), **columns})


def _print_findings(
    tables: Iterable[Table], fleet: Fleet[CheckOutcome], owners: LedgerOwners | None
) -> Iterator[Table]:
    """Print the rows of `CHECK_FINDINGS` to stderr, of several bookies with the directory, and with
    the owner if it is known; yield the other tables."""
    for table in tables:
        if table.schema != CHECK_FINDINGS:
            yield table
            continue
        prefix = "" if fleet.is_single else f"{fleet.current_directory}: "
        (owned,) = add_owners([table], LedgerOwners() if owners is None else owners)
        names = ("kind", "severity", "detail", "file", "offset", "owner")
        for *cells, owner in zip(*(owned.columns[name] for name in names)):
            finding = CheckFinding(*cells)
            suffix = "" if owner is None else f" ({owner})"
            print_stderr(f"{prefix}{finding.severity}: {finding}{suffix}")


def _without_bookie(schema: Schema) -> Schema:
    """Return the schema with a screen that does not show the only bookie's id in each row."""
    screen = screen_columns(schema)
    shown = tuple(name for name in screen.columns if name != "bookie")
    return schema._replace(screen=screen._replace(columns=shown))
