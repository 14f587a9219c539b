"""The work of `bkstore analyze`: check targets, run the analyses, write tables and the report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bkstore.cli.datasets.analysis_engines import (
    ENGINES,
    LOCAL_MASTER,
    choose_engine,
    run_each,
    start_engine,
)
from bkstore.cli.datasets.analysis_verdict import judge_results, print_unread_bookies
from bkstore.cli.datasets.analyze_summary import NEEDS_ALL_ROWS, SummaryLine
from bkstore.cli.datasets.dump_location import last_path_part
from bkstore.cli.owners.owner_options import owner_filter_from_args
from bkstore.cli.pulsar.age_options import grace_milliseconds
from bkstore.cli.pulsar.location_options import open_pulsar_copy, pulsar_location
from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.terminal.metadata_options import local_paths
from bkstore.cli.terminal.output_options import describe_column_problem
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.cli.terminal.table_output import write_tables
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.offline.analyses import (
    ANALYSES,
    Analysis,
    Inputs,
    Options,
    PulsarMetadata,
    find_analysis,
    open_inputs,
)
from bkstore.offline.analyses.engine_steps import top_rows
from bkstore.offline.reading.file_locations import require_local_path
from bkstore.offline.staging_directory import check_target
from bkstore.tables import Table
from bkstore.tables.columns import make_schema

if TYPE_CHECKING:
    import pyarrow as pa

    _Tables: TypeAlias = Mapping[str, pa.Table]

_SUMMARY = make_schema("summary", "analysis rows finding result", wrap="result")
_ROWS_PER_TABLE = 4096


def run_analyses(args: argparse.Namespace) -> int:
    """Print the summary, or the tables of --only, and write --out and --report; return 1 for
    findings, 3 if losses were looked for but there was nothing to check."""
    # Validate the arguments, and open the dumps.
    owners = owner_filter_from_args(args)
    grace = grace_milliseconds(args)
    options = Options(
        args.top, args.by, args.pinned, args.group_by, owners, grace=grace, as_of=args.as_of
    )
    chosen = _chosen_analyses(args)
    _check_columns(args.columns, chosen)
    _check_targets(args)
    engine_name = choose_engine("analyze", args.engine, report=args.report is not None)
    if engine_name == "local" and args.master is not None:
        raise InvalidArgument("--master requires --engine spark")
    # Analyses return all rows unless `_limit_rows` decides otherwise; --top then cuts the results.
    all_rows = replace(options, top=None, by=None)
    inputs = open_inputs(args.dump, args.metadata, args.other, all_rows, _pulsar_copy(args, chosen))
    chosen = _select_possible(chosen, inputs, asked=args.only is not None)
    for analysis in chosen if args.top is not None else ():
        analysis.rank_column(options)  # raises for a --by that it does not have
    # Run the analyses, and judge their results.
    runs = _limit_rows(args, chosen, inputs, options)
    with start_engine("bkstore analyze", engine_name, args.master or LOCAL_MASTER) as engine:
        tables = run_each(engine, runs)
        verdict = judge_results(tables, inputs, engine)
    # Write the tables, the report and the messages.
    if args.top is not None:
        tables = {name: top_rows(table, ANALYSES[name], options) for name, table in tables.items()}
    if args.out is not None:
        _write_files(args, tables)
    if args.report is not None:
        _write_report(args, tables, inputs, ENGINES[engine_name])
    _print_results(args, tables, verdict.lines)
    print_unread_bookies(inputs)
    if inputs.pulsar is not None:
        report_findings(inputs.pulsar.findings)
    return verdict.report()


def _chosen_analyses(args: argparse.Namespace) -> list[Analysis]:
    """Return the analyses of --only, else all; raises `InvalidArgument` for misused options."""
    if args.only is None:
        if args.by is not None:
            raise InvalidArgument("--by requires --top and one --only")
        return list(ANALYSES.values())
    analyses = [find_analysis(name.strip()) for name in args.only.split(",")]
    if args.by is not None and (len(analyses) != 1 or args.top is None):
        raise InvalidArgument("--by requires --top and one --only")
    if args.format == "parquet" and args.out is None:
        raise InvalidArgument("--format parquet writes files: give --out DIR")
    return analyses


def _pulsar_copy(args: argparse.Namespace, chosen: list[Analysis]) -> PulsarMetadata | None:
    """Return the copy of Pulsar's metadata at --pulsar; by default, if an analysis of --only needs
    them, where those of the ledgers are."""
    is_asked = args.only is not None and any(analysis.needs_pulsar for analysis in chosen)
    if args.pulsar is None and (not is_asked or args.metadata is None):
        return None
    return open_pulsar_copy(pulsar_location(args))


def _check_columns(columns: list[str] | None, chosen: list[Analysis]) -> None:
    """Raise `InvalidArgument` unless ``--columns`` names columns of the one chosen analysis."""
    if columns is None:
        return
    if len(chosen) != 1:
        raise InvalidArgument("--columns requires one --only")
    problem = describe_column_problem(columns, chosen[0].schema.names)
    if problem is not None:
        raise InvalidArgument(f"--columns: {problem}")


def _select_possible(chosen: list[Analysis], inputs: Inputs, *, asked: bool) -> list[Analysis]:
    """Return the analyses that the inputs allow, and print which are left out, or raise
    `InvalidArgument` if they were `asked` for by name."""
    # With --topic and the like, only those that can be limited to some ledgers (`chooses_by`).
    if inputs.options.owners:
        names = [analysis.name for analysis in chosen if analysis.chooses_by is None]
        if names and asked:
            raise InvalidArgument(f"{names[0]} cannot be limited to the ledgers of some owners")
        if names:
            print_stderr(f"about all ledgers, so left out: {', '.join(names)}")
        chosen = [analysis for analysis in chosen if analysis.chooses_by is not None]
    missing = {analysis.name: analysis.missing_input(inputs) for analysis in chosen}
    for name, input_name in missing.items():
        if input_name is not None and asked:
            raise InvalidArgument(f"{name} needs {input_name}")
    # Pulsar's metadata are not missed: not every cluster has some.
    for input_name, option in (("ledger metadata", "--metadata"), ("a second dump", "--other")):
        names = [name for name in missing if missing[name] == input_name]
        if names:
            print_stderr(f"without {option}: no {', '.join(names)}")
    return [analysis for analysis in chosen if missing[analysis.name] is None]


def _limit_rows(
    args: argparse.Namespace, chosen: list[Analysis], inputs: Inputs, options: Options
) -> list[tuple[Analysis, Inputs]]:
    """Return each analysis with its inputs. They have the `options` of --top, so that other rows
    are not computed, unless all rows are needed: for the summary, and for the analyses of
    `NEEDS_ALL_ROWS`, whose finding may be in any row."""
    top_inputs = inputs if _has_summary(args) else replace(inputs, options=options)
    needed = (inputs if analysis.name in NEEDS_ALL_ROWS else top_inputs for analysis in chosen)
    return list(zip(chosen, needed))


def _has_summary(args: argparse.Namespace) -> bool:
    return args.only is None or args.out is not None


def _check_targets(args: argparse.Namespace) -> None:
    """Raise `InvalidArgument` for targets that exist, lie in an input, or are URIs, and for a
    report about some ledgers."""
    if args.report is not None and owner_filter_from_args(args):
        raise InvalidArgument("--report is about all ledgers: leave out the filters by owner")
    for target, description in ((args.out, "a folder of tables"), (args.report, "a report")):
        if target is not None:
            require_local_path(target, description)
    if args.out is not None:
        check_target(args.out)
    pulsar = args.pulsar if isinstance(args.pulsar, Path) else None
    inputs = local_paths(args.dump, args.metadata, args.other, pulsar)
    for target in (args.out, args.report):
        if target is not None:
            refuse_inputs(target, inputs)
    if args.report is None:
        return
    if args.out is not None and os.path.realpath(args.out) == os.path.realpath(args.report):
        raise InvalidArgument(f"{args.report}: is the folder of --out")
    if args.report.parent != args.out:  # the folder of --out does not exist yet
        check_output(args.report)


def _table_path(out: Path, analysis_name: str, file_format: str) -> Path:
    return out / f"{analysis_name}.{'txt' if file_format == 'table' else file_format}"


def _print_results(args: argparse.Namespace, tables: _Tables, lines: list[SummaryLine]) -> None:
    """Print the summary, or with --only, unless --out has them, the tables."""
    if _has_summary(args):  # findings first; Parquet is the format of --out alone
        rows = sorted(lines, key=lambda line: not line.finding)
        output_format = args.format if args.format not in (None, "parquet") else "table"
        table = Table.from_rows(_SUMMARY, rows)
        write_tables(_SUMMARY, [table], output_format, requested=RequestedColumns(wide=args.wide))
        return
    for name, table in tables.items():
        analysis, requested = ANALYSES[name], RequestedColumns(args.columns, args.wide)
        is_silent = not table.num_rows and not analysis.schema.nothing
        if len(tables) > 1 or is_silent:
            print_stderr(f"{name}: {format_count(table.num_rows, 'row')}")
        batches = _split_table(analysis, table)
        write_tables(analysis.schema, batches, args.format or "table", requested=requested)


def _split_table(analysis: Analysis, table: pa.Table) -> Iterator[Table]:
    """Yield the rows in batches: an empty one for an empty table, which has a header too."""
    for start in range(0, max(table.num_rows, 1), _ROWS_PER_TABLE):
        yield Table(analysis.schema, table.slice(start, _ROWS_PER_TABLE).to_pydict())


def _write_files(args: argparse.Namespace, tables: _Tables) -> None:
    """Write each table to a file of its own in the directory of ``--out``."""
    out, file_format = args.out, args.format or "parquet"
    requested = RequestedColumns(args.columns, wide=True)
    try:
        OS_FILES.makedirs(out)
        for name, table in tables.items():
            target = _table_path(out, name, file_format)
            batches = _split_table(ANALYSES[name], table)
            write_tables(ANALYSES[name].schema, batches, file_format, target, requested=requested)
    except OSError as error:
        raise WriteFailed(error.filename or out, error) from error
    print_stderr(f"{out}: {format_count(len(tables), 'table')}")


def _write_report(args: argparse.Namespace, tables: _Tables, inputs: Inputs, engine: str) -> None:
    """Write the HTML page of ``--report`` about the tables."""
    from bkstore.report import write_report

    metadata_path = None if inputs.metadata is None else inputs.metadata.path
    source: dict[str, Any] = {
        "manifest": inputs.dump.manifest,
        "metadata": metadata_path,
        "engine": engine,
    }
    if inputs.metadata is not None:
        source["owners"] = inputs.metadata.owners()
    if inputs.other is not None:
        source["other"] = inputs.other.manifest
    if args.out is not None:
        all_rows = {name: _table_path(args.out, name, args.format or "parquet") for name in tables}
        source["all_rows"] = {name: str(path) for name, path in all_rows.items()}
    report_tables = {**tables, "findings": inputs.dump.read("findings")}
    title = f"Bookies in {last_path_part(args.dump)}"
    write_report(args.report, report_tables, title=title, source=source)
    print_stderr(f"report: {args.report}")
