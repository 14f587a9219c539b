"""bkstore demo: a tour with generated data: cluster, faults, audit, dump, analyses, report.

Three bookies with three kinds of storage hold striped ledgers; entries are deleted on purpose, and
the audit and the analyses have to find exactly those. The analyses run on Spark, or on DuckDB if
Spark is not installed. With --bookie, the demo runs on a given directory instead.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.availability import Availability
from bkstore.cli.screen.cells import format_row
from bkstore.cli.screen.tables import Screen, ScreenStream
from bkstore.cli.screen.text_width import wrap_text
from bkstore.cli.terminal.needed_packages import missing_packages, require_java, require_packages
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_text
from bkstore.counts import format_count, join_words
from bkstore.errors import MissingDependency
from bkstore.files.scratch import scratch_directory
from bkstore.files.user_outputs import check_output
from bkstore.ids import LedgerId
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import Schema, Table
from bkstore.tables.columns import make_schema
from bkstore.tables.safe_text import escape_unprintable

if TYPE_CHECKING:
    import pyarrow as pa

    from bkstore.cli.trials.demo_data import DemoCluster, LostReplicas
    from bkstore.cluster.audit import Violation
    from bkstore.offline.analyses import Engine
    from bkstore.offline.dump import DumpResult

_MAX_ROWS = 8
_MAX_GROUPS = 3
_SHOWN_ANALYSES = (
    "violations_by_owner",
    "bytes_by_owner",
    "bytes_by_bookie",
    "ledger_health",
    "orphans",
)
_LOST_SCHEMA = make_schema(
    "lost", "scope_id ledger_id owner? bookie entries_lost:int64", may_cut="owner"
)
_AVAILABILITY_SCHEMA = make_schema(
    "condensed", "scope_id ledger_id entries groups:string bytes by_bookkeeper:int64"
)
_VIOLATION_SCHEMA = make_schema(
    "found",
    "scope_id? ledger_id? owner? bookie? missing:int64 first:int64? last:int64?",
    may_cut="owner",
)
_LEGEND = """\
Groups are first..last/size/period. Bytes are those of the answer: condensed as
BP-34 designed it, and as BookKeeper's own encoder writes it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--bookie", metavar="DIR", type=Path, help="a bookie directory to read instead of demo data"
    )
    parser.add_argument("--live", action="store_true", help="read a directory that is in use")
    parser.add_argument(
        "--engine",
        choices=("auto", "local", "spark"),
        default="auto",
        help="engine of the analyses (auto: Spark, or DuckDB without Spark)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        help="path of the report (default: bkstore-demo.html, with --bookie "
        "bkstore-demo-NAME.html, named after the bookie)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; return 1 if the audit or the analyses do not find exactly the lost entries."""
    engine = _choose_engine(args.engine)
    from bkstore.offline.dump import dump

    with ExitStack() as stack:
        opened = [] if args.bookie is None else [BookieDir(args.bookie, live=args.live)]
        bookies = [stack.enter_context(bookie) for bookie in opened]
        report_path = args.report or Path(_report_name(bookies))
        check_output(report_path)
        for bookie in bookies:
            bookie.refuse_output(report_path)
        scratch = stack.enter_context(scratch_directory("demo"))
        step = _StepPrinter()
        # A generated cluster records what it has lost, which the audit and analyses must find.
        cluster = None if bookies else _make_cluster(scratch, step)
        if cluster is not None:
            bookies = [stack.enter_context(BookieDir(path)) for path in cluster.bookies.values()]
        step.print(f"Which entries are where, from the indexes alone\n{_LEGEND}")
        for bookie in bookies:
            _print_availability(bookie)
        found_all = cluster is None or _print_audit(cluster, bookies, step)
        step.print("The indexes and entry logs as Parquet tables")
        result = dump(bookies, scratch / "dump")
        _print_dump_counts(scratch / "dump", result)
        step.print(f"Asking {engine.description}")
        metadata = None if cluster is None else cluster.metadata
        tables = _run_analyses(engine.name, scratch / "dump", metadata)
        _print_analyses(tables)
        if cluster is not None:
            reported = _replicas_of_table(tables["violations"])
            found_all &= _compare_with_lost(engine.name, reported, cluster.lost)
            found_all &= _check_orphan(engine.name, tables["orphans"], cluster)
        _write_report(report_path, tables, scratch, cluster or bookies[0].bookie_id, engine.name)
        step.print(f"Report: {escape_unprintable(str(report_path.absolute()))}")
        if cluster is not None:
            return 0 if found_all else 1
        return report_findings(result.findings)


def _report_name(bookies: Sequence[BookieDir]) -> str:
    if not bookies:
        return "bkstore-demo.html"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", bookies[0].bookie_id)[:100].strip("-.")
    return f"bkstore-demo-{name or 'bookie'}.html"


class _EngineChoice(NamedTuple):
    name: str
    description: str


def _choose_engine(requested: str) -> _EngineChoice:
    """Return the engine to use; raises one `MissingDependency` for all missing packages."""
    spark_problem = None if requested == "local" else _spark_problem()
    if requested == "spark" or (requested == "auto" and spark_problem is None):
        require_packages("demo", "pyspark", "pandas", "pyarrow", "matplotlib", "jinja2")
        require_java()
        return _EngineChoice("Spark", "Spark, which takes about a minute, most of it to start")
    purpose = "demo" if spark_problem is None else "demo without Spark"
    require_packages(purpose, "duckdb", "pyarrow", "matplotlib", "jinja2")
    reason = "" if spark_problem is None else f", without Spark: {spark_problem}"
    return _EngineChoice("DuckDB", f"DuckDB{reason}")


def _spark_problem() -> str | None:
    """Return why Spark cannot run here, None if it can."""
    missing = missing_packages("pyspark", "pandas")
    if missing:
        return f"{join_words(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    try:
        require_java()
    except MissingDependency as error:
        return str(error)
    return None


def _print_paragraph(text: str) -> None:
    print_text(f"\n{text}\n")


class _StepPrinter:
    """Prints the titles of the steps, numbered from 1: a given bookie has fewer of them."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def print(self, title: str) -> None:
        _print_paragraph(f"{next(self._numbers)}. {title}")


def _make_cluster(top: Path, step: _StepPrinter) -> DemoCluster:
    """Make the cluster of the demo, and print which replicas it has lost."""
    from bkstore.cli.trials.demo_data import make_cluster

    step.print("Three bookies of three storages, ledgers striped over them, and faults")
    cluster = make_cluster(top)
    lost, orphan = cluster.lost, cluster.orphan
    rows = [
        (*ledger.signed, _owner_name(cluster, ledger), bookie, len(lost[ledger, bookie]))
        for ledger, bookie in lost
    ]
    _print_table(_LOST_SCHEMA, [Table.from_rows(_LOST_SCHEMA, rows)])
    print_text(f"Ledger {orphan} was deleted: its metadata are gone, but its entries remain.\n")
    return cluster


def _owner_name(cluster: DemoCluster, ledger: LedgerId) -> str | None:
    """Return the topic of a ledger, None if its metadata state none."""
    owner = cluster.owners.get(ledger)
    return None if owner is None else owner.subject


def _print_table(table_schema: Schema, tables: Iterable[Table]) -> None:
    """Print the tables, without columns that do not fit and without a hint at them."""
    screen = Screen(sys.stdout, table_schema)
    for table in tables:
        screen.write(table)
    screen.finish()


def _print_availability(bookie: BookieDir) -> None:
    """Print a table of the first ledgers of a bookie, with groups and sizes of both encodings."""
    ledgers = bookie.index.ledgers()
    rows = []
    for ledger in ledgers[:_MAX_ROWS]:
        stored = bookie.index.availability(ledger)
        sizes = [len(stored.to_bytes(encoding)) for encoding in ("grouped", "bookkeeper")]
        groups = " ".join(map(format_row, stored.groups[:_MAX_GROUPS].tolist()))
        ellipsis = " ..." if len(stored.groups) > _MAX_GROUPS else ""
        rows.append((*ledger.signed, len(stored), groups + ellipsis, *sizes))
    count = format_count(len(ledgers), "ledger")
    print_text(f"\n{escape_unprintable(bookie.bookie_id)} ({bookie.layout}): {count}\n")
    _print_table(_AVAILABILITY_SCHEMA, [Table.from_rows(_AVAILABILITY_SCHEMA, rows)])


def _print_audit(cluster: DemoCluster, bookies: Sequence[BookieDir], step: _StepPrinter) -> bool:
    """Audit the bookies and print the violations; return whether they are exactly what was lost."""
    from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie
    from bkstore.cluster.store.opening import open_metadata

    step.print("Auditing them against the ledger metadata (BP-34)")
    audited_bookies = {bookie.bookie_id: DirectoryBookie(bookie) for bookie in bookies}
    options = AuditOptions(rechecks=0)
    report = Auditor(open_metadata(cluster.metadata), audited_bookies, options=options).run()
    rows = [_violation_row(violation, cluster) for violation in report.violations]
    _print_table(_VIOLATION_SCHEMA, [Table.from_rows(_VIOLATION_SCHEMA, rows)])
    return _compare_with_lost("The audit", _replicas_of_violations(report.violations), cluster.lost)


def _violation_row(violation: Violation, cluster: DemoCluster) -> tuple[Any, ...]:
    """Return the row of `_VIOLATION_SCHEMA`; null is what the violation does not name."""
    scope, ledger, owner = None, None, None
    if violation.ledger is not None:
        (scope, ledger), owner = violation.ledger.signed, _owner_name(cluster, violation.ledger)
    missing = violation.missing or Availability()
    ranges = missing.ranges()  # a row (first, last) each
    first, last = (int(ranges[0, 0]), int(ranges[-1, 1])) if len(ranges) else (None, None)
    return scope, ledger, owner, violation.bookie, len(missing), first, last


def _replicas_of_violations(violations: Sequence[Violation]) -> LostReplicas:
    return {
        (violation.ledger, violation.bookie or ""): set(violation.missing or ())
        for violation in violations
        if violation.ledger is not None
    }


def _replicas_of_table(violations: pa.Table) -> LostReplicas:
    """Return the missing entry ids by (ledger, bookie)."""
    replicas: LostReplicas = {}
    for row in violations.to_pylist():
        ledger = LedgerId.from_signed(row["scope_id"], row["ledger_id"])
        replicas[ledger, row["bookie"]] = set(Availability.from_groups(row["missing_groups"]))
    return replicas


def _compare_with_lost(finder: str, reported: LostReplicas, lost: LostReplicas) -> bool:
    """Print and return whether `finder` reported the lost entries by (ledger, bookie) exactly."""
    if reported == lost:
        count = f"{sum(map(len, lost.values()))} lost replicas of {len(lost)} places"
        _print_paragraph(f"{finder} found all {count}, and no others.")
        return True
    _print_paragraph(f"{finder} found {reported}, but {lost} were lost")
    return False


def _check_orphan(finder: str, orphans: pa.Table, cluster: DemoCluster) -> bool:
    """Return whether only the ledger whose metadata were deleted is an orphan, else print which."""
    rows = orphans.to_pylist()
    reported = {LedgerId.from_signed(row["scope_id"], row["ledger_id"]) for row in rows}
    if reported == {cluster.orphan}:
        return True
    _print_paragraph(f"{finder} found the orphans {reported}, but {cluster.orphan} is the one")
    return False


def _print_dump_counts(out: Path, result: DumpResult) -> None:
    size = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    counts = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
    lines = wrap_text(f"{counts} in {size:,} bytes", ScreenStream(sys.stdout).width)
    print_text("\n".join(lines) + "\n")


def _run_analyses(engine: str, dump_path: Path, metadata: Path | None) -> dict[str, pa.Table]:
    """Return the tables of all analyses that this dump has the input for."""
    from bkstore.offline.analyses import ANALYSES, open_inputs

    inputs = open_inputs(dump_path, metadata)
    possible = [each for each in ANALYSES.values() if each.missing_input(inputs) is None]
    tables: dict[str, pa.Table] = {}
    with work_progress("row") as show_progress:
        if show_progress is not None:
            show_progress(f"{engine} starts", 0, len(possible), 0)
        with _start_engine(engine) as running_engine:
            for index, analysis in enumerate(possible):
                if show_progress is not None:
                    rows = sum(table.num_rows for table in tables.values())
                    show_progress(analysis.name, index, len(possible), rows)
                tables[analysis.name] = running_engine.run(analysis, inputs)
    return tables


@contextmanager
def _start_engine(engine: str) -> Iterator[Engine]:
    """Provide the engine of this name, DuckDB or Spark."""
    if engine == "DuckDB":
        from bkstore.offline.analyses import LocalEngine

        yield LocalEngine()
        return
    from bkstore.spark.analysis import SparkEngine
    from bkstore.spark.session import local_session

    with local_session("bkstore demo") as spark:
        yield SparkEngine(spark)


def _print_analyses(tables: Mapping[str, pa.Table]) -> None:
    """Print the first rows of the most telling analyses."""
    from bkstore.offline.analyses import ANALYSES

    for name in _SHOWN_ANALYSES:
        if name in tables:
            _print_paragraph(f"{name}:")
            schema, first_rows = ANALYSES[name].schema, tables[name].slice(0, _MAX_ROWS)
            _print_table(schema, [Table(schema, first_rows.to_pydict())])
            if tables[name].num_rows > _MAX_ROWS:
                print_text(f"... {tables[name].num_rows} rows\n")


def _write_report(
    target: Path,
    tables: Mapping[str, pa.Table],
    top: Path,
    subject: DemoCluster | str,
    engine: str,
) -> None:
    """Write the report of the dump below `top`: of the demo's cluster, or the bookie of this id."""
    from bkstore.cli.trials.demo_data import ENTRIES
    from bkstore.offline.analyses import open_dump
    from bkstore.report import write_report

    opened_dump = open_dump(top / "dump")
    source: dict[str, Any] = {"manifest": opened_dump.manifest, "engine": engine}
    if isinstance(subject, str):
        title = f"Bookie {subject}"
    else:
        title = f"The demo: eight ledgers of {ENTRIES:,} entries"
        bookies = [_mark_removed(bookie, top) for bookie in opened_dump.manifest["bookies"]]
        source["manifest"] = {**opened_dump.manifest, "bookies": bookies}
        source |= {"metadata": "metadata.json of the demo", "owners": subject.owners}
    all_tables = {**tables, "findings": opened_dump.read("findings")}
    write_report(target, all_tables, title=title, source=source)


def _mark_removed(bookie: Mapping[str, Any], top: Path) -> dict[str, Any]:
    """Return the manifest's bookie with a path that says its temporary directory is removed."""
    path = Path(bookie["path"]).relative_to(top)
    return {**bookie, "path": f"{path} of the demo, removed at its end"}
