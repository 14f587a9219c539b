"""What `bkstore analyze` does: its targets checked, the analyses run, tables and report written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.offline.analyses import ANALYSES, Engine, Inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bkstore.cli.datasets.analyze_summary import JUDGED_BY_ALL_ROWS, Line, summarise
from bkstore.cli.datasets.dump_place import name_of
from bkstore.cli.screen.column_choice import Shown
from bkstore.cli.terminal.exit_codes import verdict
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.metadata_options import paths_only
from bkstore.cli.terminal.needed_packages import (
    missing_packages,
    require_java,
    require_packages,
)
from bkstore.cli.terminal.output_options import unknown_column
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.table_output import write_tables
from bkstore.counts import counted
from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES
from bkstore.files.user_outputs import check_output, refuse_inputs
from bkstore.offline.analyses import (
    Analysis,
    LocalEngine,
    Options,
    find,
    open_inputs,
)
from bkstore.offline.analyses.engine_steps import top_rows
from bkstore.offline.reading.places import only_path
from bkstore.offline.staging_directory import check_target
from bkstore.tables import Table
from bkstore.tables.columns import schema

if TYPE_CHECKING:
    import pyarrow as pa

_SUMMARY = schema("summary", "analysis rows finding says", fold="says")
_ENGINES = {"local": "DuckDB and kernels, on one machine", "spark": "Spark"}
_HERE = "local[*]"
_AT_A_TIME = 4096


_JUDGING = frozenset({"violations", "homeless", "ledger_health"})
_FINDING_HOLES = frozenset({"holes"})


def has_checked(tables: Mapping[str, pa.Table], inputs: Inputs, engine: Engine) -> bool:
    """Return whether one of the analyses that look for losses has looked at an entry.

    True where none of them was asked for: the others only count. Against metadata the rule is the
    audit's: a ledger was judged, and if some of those judged have entries, entries of one were
    due at a bookie that was read. `tables` has all rows of `ledger_health`; it is run for this
    where it was not asked for.
    """
    if inputs.metadata is None:
        has_groups = any(file.rows for file in inputs.dump.files["groups"])
        return has_groups or not _FINDING_HOLES & tables.keys()
    if not _JUDGING & tables.keys():
        return True
    health = tables.get("ledger_health")
    if health is None:
        health = engine.run(ANALYSES["ledger_health"], inputs)
    due, last_entries = (health.column(n).to_pylist() for n in ("replicas_due", "last_entry_id"))
    judged = [(count, last) for count, last in zip(due, last_entries) if count is not None]
    has_entries = any(last >= 0 for _, last in judged)
    return any(count for count, _ in judged) or bool(judged and not has_entries)


def run_analyses(args: argparse.Namespace) -> int:
    """Print the summary, or the tables of --only; exit code 1 if something is amiss.

    Exit code 3 where losses were looked for, and nothing was there to be checked.
    """
    options = Options(args.top, args.by, args.pinned)
    chosen = _chosen(args)
    _check_columns(args.columns, chosen)
    _check_targets(args)
    name = _engine_name(args.engine, report=args.report is not None)
    if name == "local" and args.master is not None:
        raise InvalidArgument("--master goes with --engine spark")
    inputs = open_inputs(args.dump, args.metadata, args.other, Options(pinned=args.pinned))
    chosen = _possible(chosen, inputs, asked=args.only is not None)
    for each in chosen if args.top is not None else ():
        each.ranked_by(options)
    asked = _asked(args, chosen, inputs, options)
    with _engine(name, args.master or _HERE) as engine:
        tables = _run(engine, asked)
        lines = [summarise(name, table, inputs) for name, table in tables.items()]
        amiss = any(line.finding for line in lines)
        amiss = amiss or bool(inputs.dump.unread or inputs.dump.damage)
        checked = amiss or has_checked(tables, inputs, engine)
    if args.top is not None:
        tables = {n: top_rows(table, ANALYSES[n], options) for n, table in tables.items()}
    if args.out is not None:
        _write_files(args, tables)
    if args.report is not None:
        _report(args, tables, inputs, _ENGINES[name])
    _print(args, tables, lines)
    for bookie, reason in inputs.dump.unread.items():
        tell(f"{bookie} counts as not dumped: {reason}")
    if not checked:
        tell("nothing was checked: no entry is here that could be missing")
    return verdict(findings=amiss, checked=checked)


def _chosen(args: argparse.Namespace) -> list[Analysis]:
    if args.only is None:
        if args.by is not None:
            raise InvalidArgument("--by goes with --top and one --only")
        return list(ANALYSES.values())
    chosen = [find(name.strip()) for name in args.only.split(",")]
    if args.by is not None and (len(chosen) != 1 or args.top is None):
        raise InvalidArgument("--by goes with --top and one --only")
    if args.format == "parquet" and args.out is None:
        raise InvalidArgument("--format parquet writes files: give --out DIR")
    return chosen


def _check_columns(columns: list[str] | None, chosen: list[Analysis]) -> None:
    if columns is None:
        return
    if len(chosen) != 1:
        raise InvalidArgument("--columns goes with one --only")
    wrong = unknown_column(columns, chosen[0].schema.names)
    if wrong is not None:
        raise InvalidArgument(f"--columns: {wrong}")


def _possible(chosen: list[Analysis], inputs: Inputs, *, asked: bool) -> list[Analysis]:
    """Leave out what the inputs do not allow, and say so; refuse it if it was asked for."""
    lacking = {each.name: each.lacks(inputs) for each in chosen}
    for name, lack in lacking.items():
        if lack is not None and asked:
            raise InvalidArgument(f"{name} needs {lack}")
    for lack, option in (("ledger metadata", "--metadata"), ("a second dump", "--other")):
        names = [name for name, its in lacking.items() if its == lack]
        if names:
            tell(f"without {option}: no {', '.join(names)}")
    return [each for each in chosen if lacking[each.name] is None]


def _asked(
    args: argparse.Namespace, chosen: list[Analysis], inputs: Inputs, options: Options
) -> list[tuple[Analysis, Inputs]]:
    """Return each analysis, and what of it: the top rows, or all where they are added up."""
    top = inputs if _has_summary(args) else replace(inputs, options=options)
    return [(each, inputs if each.name in JUDGED_BY_ALL_ROWS else top) for each in chosen]


def _has_summary(args: argparse.Namespace) -> bool:
    """Return whether a line for each analysis is printed, rather than the tables."""
    return args.only is None or args.out is not None


def _check_targets(args: argparse.Namespace) -> None:
    """Refuse targets that are there, that lie in what is read, or that are URIs."""
    for target, what in ((args.out, "a folder of tables"), (args.report, "a report")):
        if target is not None:
            only_path(target, what)
    if args.out is not None:
        check_target(args.out)
    read = paths_only(args.dump, args.metadata, args.other)
    for target in (args.out, args.report):
        if target is not None:
            refuse_inputs(target, read)
    if args.report is None:
        return
    if args.out is not None and os.path.realpath(args.out) == os.path.realpath(args.report):
        raise InvalidArgument(f"{args.report}: is --out, a folder")
    if args.report.parent != args.out:
        check_output(args.report)


def _suffix(form: str) -> str:
    return "txt" if form == "table" else form


def _engine_name(asked: str, *, report: bool) -> str:
    """Return the engine to use; the local one comes first. Says at once what is not installed."""
    needed = ["pyarrow", "matplotlib", "jinja2"] if report else ["pyarrow"]
    local = asked == "local" or (
        asked == "auto" and not (missing_packages("duckdb") and not missing_packages("pyspark"))
    )
    if local:
        require_packages("analyze", "duckdb", *needed)
        return "local"
    require_packages("analyze with Spark", "pyspark", "pandas", *needed)
    require_java()
    return "spark"


@contextmanager
def _engine(name: str, master: str) -> Iterator[Engine]:
    if name == "local":
        yield LocalEngine()
        return
    from bkstore.spark.analysis import SparkEngine
    from bkstore.spark.session import local_session

    fast = master == "local" or master.startswith("local[")
    with local_session("bkstore analyze", master, fast_start=fast) as spark:
        spark.sparkContext.setLogLevel("FATAL")  # what fails is told in one line
        yield SparkEngine(spark)


def _run(engine: Engine, asked: list[tuple[Analysis, Inputs]]) -> dict[str, pa.Table]:
    tables: dict[str, pa.Table] = {}
    with work_progress("rows") as show:
        for at, (each, inputs) in enumerate(asked):
            if show is not None:
                rows = sum(table.num_rows for table in tables.values())
                show(each.name, at, len(asked), rows)
            tables[each.name] = engine.run(each, inputs)
    return tables


def _print(args: argparse.Namespace, tables: Mapping[str, pa.Table], lines: list[Line]) -> None:
    if _has_summary(args):
        rows = sorted(lines, key=lambda line: not line.finding)
        form = args.format if args.format not in (None, "parquet") else "table"
        table = Table.from_rows(_SUMMARY, rows)
        write_tables(_SUMMARY, [table], form, shown=Shown(wide=args.wide))
        return
    for name, table in tables.items():
        if len(tables) > 1:
            tell(f"{name}: {counted(table.num_rows, 'row')}")
        pieces, shown = _pieces(ANALYSES[name], table), Shown(args.columns, args.wide)
        write_tables(ANALYSES[name].schema, pieces, args.format or "table", shown=shown)


def _pieces(analysis: Analysis, table: pa.Table) -> Iterator[Table]:
    for at in range(0, max(table.num_rows, 1), _AT_A_TIME):
        yield Table(analysis.schema, table.slice(at, _AT_A_TIME).to_pydict())


def _write_files(args: argparse.Namespace, tables: Mapping[str, pa.Table]) -> None:
    out, form, shown = args.out, args.format or "parquet", Shown(args.columns, wide=True)
    try:
        OS_FILES.makedirs(out)
        for name, table in tables.items():
            target = out / f"{name}.{_suffix(form)}"
            pieces = _pieces(ANALYSES[name], table)
            write_tables(ANALYSES[name].schema, pieces, form, target, shown=shown)
    except OSError as error:
        raise WriteFailed(error.filename or out, error) from error
    tell(f"{out}: {counted(len(tables), 'table')}")


def _report(
    args: argparse.Namespace, tables: Mapping[str, pa.Table], inputs: Inputs, engine: str
) -> None:
    from bkstore.report import write_report

    said = None if inputs.metadata is None else inputs.metadata.path
    source = {"manifest": inputs.dump.manifest, "metadata": said, "engine": engine}
    if inputs.other is not None:
        source["other"] = inputs.other.manifest
    if args.out is not None:
        suffix = _suffix(args.format or "parquet")
        source["all_rows"] = {name: str(args.out / f"{name}.{suffix}") for name in tables}
    shown = {**tables, "findings": inputs.dump.read("findings")}
    write_report(args.report, shown, title=f"Bookies in {name_of(args.dump)}", source=source)
    tell(f"report: {args.report}")
