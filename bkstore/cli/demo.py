"""bkstore demo: the whole road on data it makes: cluster, faults, audit, dump, analyses, report.

Three bookies of three storages hold striped ledgers; entries are lost on purpose, and the audit
and the analyses have to find exactly those. Spark does the analyses, or where it is not there
DuckDB. With --bookie it goes the road on a directory of yours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.availability import Availability
from bkstore.cli.terminal.needed_packages import missing_packages, require_java, require_packages
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.table_output import write_tables
from bkstore.errors import MissingDependency
from bkstore.files.scratch import scratch_directory
from bkstore.files.user_outputs import check_output
from bkstore.ids import LedgerId
from bkstore.storage.read_only.bookie_dir import BookieDir

if TYPE_CHECKING:
    import pyarrow as pa

    from bkstore.cli.demo_data import DemoCluster, Lost
    from bkstore.cluster.audit import Violation
    from bkstore.offline.dump import DumpResult

__all__ = ["add_arguments", "run"]

_SHOWN = 8
_ASKED = ("bytes_by_bookie", "ledger_health", "orphans")


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
        help="what runs the analyses (auto: Spark, or DuckDB where Spark is not there)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        default=Path("bkstore-demo.html"),
        help="where the report goes (default: bkstore-demo.html)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if audit or analyses find anything but what was lost."""
    check_output(args.report)
    engine = _choose_engine(args.engine)
    from bkstore.offline.dump import dump

    with ExitStack() as stack:
        top = stack.enter_context(scratch_directory("demo"))
        made = None if args.bookie is not None else _make(top)
        paths = [args.bookie] if made is None else list(made.bookies.values())
        bookies = [stack.enter_context(BookieDir(path, live=args.live)) for path in paths]
        for bookie in bookies:
            bookie.refuse_output(args.report)
        _say("2. Which entries are where, from the indexes alone")
        for bookie in bookies:
            _show_availability(bookie)
        wrong = 0 if made is None else _audit(made, bookies)
        _say("4. The indexes and entry logs as Parquet tables")
        result = dump(bookies, top / "dump")
        _show_dump(top / "dump", result)
        _say(f"5. Asking {engine.says}")
        tables = _ask(engine.name, top / "dump", None if made is None else made.metadata)
        for name in _ASKED:
            if name in tables:
                _say(f"{name}:")
                _show_table(tables[name])
        if made is not None:
            wrong += _check(engine.name, _replicas_of(tables["violations"]), made.lost)
            wrong += _check_orphan(engine.name, tables["orphans"], made)
        _report(args.report, tables, top / "dump", made, engine.name)
        return 1 if wrong else report_findings(result.findings) if made is None else 0


class _Chosen(NamedTuple):
    """What does the analyses, "Spark" or "DuckDB", and what is said of the choice."""

    name: str
    says: str


def _choose_engine(asked: str) -> _Chosen:
    """Return what does the analyses; `MissingDependency` names at once all that is missing."""
    lack = None if asked == "local" else _spark_lacks()
    if asked == "spark" or (asked == "auto" and lack is None):
        require_packages("demo", "pyspark", "pandas", "pyarrow", "matplotlib", "jinja2")
        require_java()
        return _Chosen("Spark", "Spark")
    purpose = "demo" if lack is None else "demo without Spark"
    require_packages(purpose, "duckdb", "pyarrow", "matplotlib", "jinja2")
    return _Chosen("DuckDB", "DuckDB" if lack is None else f"DuckDB, without Spark: {lack}")


def _spark_lacks() -> str | None:
    """Return what Spark would need and is not here, None if it can run."""
    missing = missing_packages("pyspark", "pandas")
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    try:
        require_java()
    except MissingDependency as error:
        return str(error)
    return None


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)  # noqa: T201


def _make(top: Path) -> DemoCluster:
    from bkstore.cli.demo_data import make_cluster

    _say("1. Three bookies of three storages, ledgers striped over them, and faults")
    made = make_cluster(top)
    rows = [(str(ledger), bookie, len(entries)) for (ledger, bookie), entries in made.lost.items()]
    _show_rows(("ledger", "at bookie", "entries lost"), rows)
    print(f"Ledger {made.orphan} was deleted: its metadata are gone, its entries are not.")  # noqa: T201
    return made


def _show_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for at, name in enumerate(names):
        numeric = bool(rows) and isinstance(rows[0][at], int)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row))
    Console(width=200, highlight=False).print(table)


def _show_availability(bookie: BookieDir) -> None:
    ledgers = bookie.index.ledgers()
    rows = []
    for ledger in ledgers[:_SHOWN]:
        here = bookie.index.availability(ledger)
        condensed, built = (len(here.to_bytes(how)) for how in ("grouped", "bookkeeper"))
        groups = " ".join(f"{f}..{p}/{s}/{w}" for f, p, s, w in here.groups[:3].tolist())
        more = " ..." if len(here.groups) > 3 else ""
        rows.append((str(ledger), len(here), groups + more, condensed, built))
    print(f"\n{bookie.bookie_id} ({bookie.layout}): {len(ledgers)} ledgers")  # noqa: T201
    names = ("ledger", "entries", "groups (first..last/size/period)", "bytes", "as a bookie")
    _show_rows(names, rows)


# -- audit


def _audit(made: DemoCluster, bookies: Sequence[BookieDir]) -> int:
    """Print what the audit finds; return 1 if that is not what was lost."""
    from bkstore.cli.audit import on_screen
    from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie
    from bkstore.cluster.store.dump_store import open_metadata

    _say("3. Auditing them against the ledger metadata (BP-34)")
    asked = {bookie.bookie_id: DirectoryBookie(bookie) for bookie in bookies}
    options = AuditOptions(looks=0)
    report = Auditor(open_metadata(made.metadata), asked, options=options).run()
    write_tables(*on_screen(report.violations), "table")
    return _check("The audit", _replicas(report.violations), made.lost)


def _replicas(violations: Sequence[Violation]) -> Lost:
    return {
        (each.ledger, each.bookie or ""): set(each.missing or ())
        for each in violations
        if each.ledger is not None
    }


def _replicas_of(table: pa.Table) -> Lost:
    return {
        (LedgerId.from_signed(row["scope_id"], row["ledger_id"]), row["bookie"]): set(
            Availability.from_groups(row["missing_groups"])
        )
        for row in table.to_pylist()
    }


def _check(who: str, found: Lost, lost: Lost) -> int:
    if found == lost:
        count = sum(map(len, lost.values()))
        _say(f"{who} found all {count} lost replicas of {len(lost)} places, and no others.")
        return 0
    _say(f"{who} found {found}, but {lost} were lost")
    return 1


def _check_orphan(who: str, orphans: pa.Table, made: DemoCluster) -> int:
    found = {LedgerId.from_signed(row["scope_id"], row["ledger_id"]) for row in orphans.to_pylist()}
    if found == {made.orphan}:
        return 0
    _say(f"{who} found the orphans {found}, but {made.orphan} is the one")
    return 1


# -- dump, analyses, report


def _show_dump(out: Path, result: DumpResult) -> None:
    size = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    told = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
    print(f"{told} in {size:,} bytes")  # noqa: T201


def _ask(engine: str, dumped: Path, metadata: Path | None) -> dict[str, pa.Table]:
    """Return the table of every analysis that can be asked, from Spark or DuckDB."""
    from bkstore.offline.analyses import ANALYSES, LocalEngine, open_inputs

    inputs = open_inputs(dumped, metadata)
    possible = [each for each in ANALYSES.values() if each.lacks(inputs) is None]
    if engine == "DuckDB":
        local = LocalEngine()
        return {each.name: local.run(each, inputs) for each in possible}
    from bkstore.spark.analysis import SparkEngine
    from bkstore.spark.session import local_session

    with local_session("bkstore demo") as spark:
        by_spark = SparkEngine(spark)
        return {each.name: by_spark.run(each, inputs) for each in possible}


def _show_table(table: pa.Table) -> None:
    hidden = {"scope_id", "ledger_id", "ensemble_size", "segments", "last_entry_id"}
    names = [name for name in table.column_names if name not in hidden]
    rows = [tuple(row.values()) for row in table.select(names).to_pylist()]
    _show_rows(names, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        print(f"... {len(rows)} rows")  # noqa: T201


def _report(
    target: Path,
    tables: Mapping[str, pa.Table],
    dumped: Path,
    made: DemoCluster | None,
    engine: str,
) -> None:
    from bkstore.cli.demo_data import ENTRIES
    from bkstore.offline.analyses import open_dump
    from bkstore.report import write_report

    opened = open_dump(dumped)
    source = {
        "manifest": opened.manifest,
        "metadata": None if made is None else "metadata.json of the demo",
        "engine": engine,
    }
    title = "A bookie" if made is None else f"The demo: eight ledgers of {ENTRIES:,} entries"
    shown = {**tables, "findings": opened.read("findings")}
    write_report(target, shown, title=title, source=source)
    _say(f"6. Report: {target.absolute()}")
