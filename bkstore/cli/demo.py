"""bkstore demo: the whole road on data it makes: cluster, faults, audit, dump, analyses, report.

Three bookies of three storages hold striped ledgers; entries are lost on purpose, and the audit
and the analyses have to find exactly those. Spark does the analyses, or where it is not there
DuckDB. With --bookie it goes the road on a directory of yours.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.availability import Availability
from bkstore.cli.screen.cells import Beginning, cell, folded
from bkstore.cli.screen.tables import Screen, ScreenStream
from bkstore.cli.terminal.messages import print_text
from bkstore.cli.terminal.needed_packages import missing_packages, require_java, require_packages
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.counts import in_words
from bkstore.errors import MissingDependency
from bkstore.files.scratch import scratch_directory
from bkstore.files.user_outputs import check_output
from bkstore.ids import LedgerId
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import Schema, Table
from bkstore.tables.columns import schema
from bkstore.tables.safe_text import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from bkstore.cli.demo_data import DemoCluster, Lost
    from bkstore.cluster.audit import Violation
    from bkstore.offline.analyses import Engine
    from bkstore.offline.dump import DumpResult

_SHOWN = 8
_RANGES = 3
_ASKED = ("bytes_by_bookie", "ledger_health", "orphans")
_LOST = schema("lost", "ledger_id:string bookie entries_lost:int64")
_CONDENSED = schema(
    "condensed", "scope_id ledger_id entries groups:string bytes by_bookkeeper:int64"
)
_FOUND = schema("found", "category scope_id? ledger_id? bookie? missing:string")
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
        help="what runs the analyses (auto: Spark, or DuckDB where Spark is not there)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        help="where the report goes (default: bkstore-demo.html, with --bookie "
        "bkstore-demo-NAME.html, named after the bookie)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if audit or analyses find anything but what was lost."""
    engine = _choose_engine(args.engine)
    from bkstore.offline.dump import dump

    with ExitStack() as stack:
        given = [] if args.bookie is None else [BookieDir(args.bookie, live=args.live)]
        bookies = [stack.enter_context(bookie) for bookie in given]
        target = args.report or Path(_report_name(bookies))
        check_output(target)
        for bookie in bookies:
            bookie.refuse_output(target)
        top = stack.enter_context(scratch_directory("demo"))
        made = None if bookies else _make(top)
        if made is not None:
            bookies = [stack.enter_context(BookieDir(path)) for path in made.bookies.values()]
        _say(f"2. Which entries are where, from the indexes alone\n{_LEGEND}")
        for bookie in bookies:
            _show_availability(bookie)
        wrong = 0 if made is None else _audit(made, bookies)
        _say("4. The indexes and entry logs as Parquet tables")
        result = dump(bookies, top / "dump")
        _show_dump(top / "dump", result)
        _say(f"5. Asking {engine.says}")
        tables = _ask(engine.name, top / "dump", None if made is None else made.metadata)
        _show_answers(tables)
        if made is not None:
            wrong += _check(engine.name, _replicas_of(tables["violations"]), made.lost)
            wrong += _check_orphan(engine.name, tables["orphans"], made)
        _report(target, tables, top, bookies if made is None else None, engine.name)
        return 1 if wrong else report_findings(result.findings) if made is None else 0


def _report_name(bookies: Sequence[BookieDir]) -> str:
    """Return the report's default name, which has what a file name can have of a bookie's id."""
    if not bookies:
        return "bkstore-demo.html"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", bookies[0].bookie_id)[:100].strip("-.")
    return f"bkstore-demo-{name or 'bookie'}.html"


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
        return _Chosen("Spark", "Spark, which takes about a minute, most of it to start")
    purpose = "demo" if lack is None else "demo without Spark"
    require_packages(purpose, "duckdb", "pyarrow", "matplotlib", "jinja2")
    return _Chosen("DuckDB", "DuckDB" if lack is None else f"DuckDB, without Spark: {lack}")


def _spark_lacks() -> str | None:
    """Return what Spark would need and is not here, None if it can run."""
    missing = missing_packages("pyspark", "pandas")
    if missing:
        return f"{in_words(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    try:
        require_java()
    except MissingDependency as error:
        return str(error)
    return None


def _say(text: str) -> None:
    print_text(f"\n{text}\n")


def _make(top: Path) -> DemoCluster:
    from bkstore.cli.demo_data import make_cluster

    _say("1. Three bookies of three storages, ledgers striped over them, and faults")
    made = make_cluster(top)
    rows = [(str(ledger), bookie, len(entries)) for (ledger, bookie), entries in made.lost.items()]
    _show(_LOST, [Table.from_rows(_LOST, rows)])
    print_text(f"Ledger {made.orphan} was deleted: its metadata are gone, its entries are not.\n")
    return made


def _show(declared: Schema, tables: Iterable[Table]) -> None:
    """Print what fits of a table; nothing leads from here to what was left out."""
    screen = Screen(sys.stdout, declared)
    for table in tables:
        screen.write(table)
    screen.finish()


def _show_availability(bookie: BookieDir) -> None:
    ledgers = bookie.index.ledgers()
    rows = []
    for ledger in ledgers[:_SHOWN]:
        here = bookie.index.availability(ledger)
        condensed, built = (len(here.to_bytes(how)) for how in ("grouped", "bookkeeper"))
        groups = " ".join(f"{f}..{p}/{s}/{w}" for f, p, s, w in here.groups[:3].tolist())
        more = " ..." if len(here.groups) > 3 else ""
        rows.append((*ledger.signed, len(here), groups + more, condensed, built))
    count = f"{len(ledgers)} ledger{'' if len(ledgers) == 1 else 's'}"
    print_text(f"\n{shown(bookie.bookie_id)} ({bookie.layout}): {count}\n")
    _show(_CONDENSED, [Table.from_rows(_CONDENSED, rows)])


# -- audit


def _audit(made: DemoCluster, bookies: Sequence[BookieDir]) -> int:
    """Print what the audit finds; return 1 if that is not what was lost."""
    from bkstore.cluster.audit import AuditOptions, Auditor, DirectoryBookie
    from bkstore.cluster.store.opening import open_metadata

    _say("3. Auditing them against the ledger metadata (BP-34)")
    asked = {bookie.bookie_id: DirectoryBookie(bookie) for bookie in bookies}
    options = AuditOptions(looks=0)
    report = Auditor(open_metadata(made.metadata), asked, options=options).run()
    rows = [_found(each) for each in report.violations]
    _show(_FOUND, [Table.from_rows(_FOUND, rows)])
    return _check("The audit", _replicas(report.violations), made.lost)


def _found(violation: Violation) -> tuple[Any, ...]:
    scope, ledger = (None, None) if violation.ledger is None else violation.ledger.signed
    gone = violation.missing or Availability()
    ranges = gone.ranges(limit=_RANGES).tolist()
    if gone.range_count > _RANGES:
        ranges = Beginning(ranges, f"{gone.range_count} ranges")
    return violation.category, scope, ledger, violation.bookie, cell(ranges)


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
    lines = folded(f"{told} in {size:,} bytes", ScreenStream(sys.stdout).width)
    print_text("\n".join(lines) + "\n")


def _ask(engine: str, dumped: Path, metadata: Path | None) -> dict[str, pa.Table]:
    """Return the table of every analysis that can be asked, from Spark or DuckDB."""
    from bkstore.offline.analyses import ANALYSES, open_inputs

    inputs = open_inputs(dumped, metadata)
    possible = [each for each in ANALYSES.values() if each.lacks(inputs) is None]
    tables: dict[str, pa.Table] = {}
    with work_progress("rows") as show:
        if show is not None:
            show(f"{engine} starts", 0, len(possible), 0)
        with _started(engine) as started:
            for at, each in enumerate(possible):
                if show is not None:
                    rows = sum(table.num_rows for table in tables.values())
                    show(each.name, at, len(possible), rows)
                tables[each.name] = started.run(each, inputs)
    return tables


@contextmanager
def _started(engine: str) -> Iterator[Engine]:
    if engine == "DuckDB":
        from bkstore.offline.analyses import LocalEngine

        yield LocalEngine()
        return
    from bkstore.spark.analysis import SparkEngine
    from bkstore.spark.session import local_session

    with local_session("bkstore demo") as spark:
        yield SparkEngine(spark)


def _show_answers(tables: Mapping[str, pa.Table]) -> None:
    from bkstore.offline.analyses import ANALYSES

    for name in _ASKED:
        if name in tables:
            _say(f"{name}:")
            first = tables[name].slice(0, _SHOWN)
            _show(ANALYSES[name].schema, [Table(ANALYSES[name].schema, first.to_pydict())])
            if tables[name].num_rows > _SHOWN:
                print_text(f"... {tables[name].num_rows} rows\n")


def _report(
    target: Path,
    tables: Mapping[str, pa.Table],
    top: Path,
    given: Sequence[BookieDir] | None,
    engine: str,
) -> None:
    """Write the report of the dump below `top`, about the demo's bookies or the `given` ones."""
    from bkstore.cli.demo_data import ENTRIES
    from bkstore.offline.analyses import open_dump
    from bkstore.report import write_report

    opened = open_dump(top / "dump")
    manifest, metadata = opened.manifest, None
    if given is None:
        title = f"The demo: eight ledgers of {ENTRIES:,} entries"
        metadata = "metadata.json of the demo"
        manifest = {**manifest, "bookies": [_gone(each, top) for each in manifest["bookies"]]}
    else:
        title = f"Bookie {given[0].bookie_id}"
    source = {"manifest": manifest, "metadata": metadata, "engine": engine}
    all_tables = {**tables, "findings": opened.read("findings")}
    write_report(target, all_tables, title=title, source=source)
    _say(f"6. Report: {shown(str(target.absolute()))}")


def _gone(bookie: Mapping[str, Any], top: Path) -> dict[str, Any]:
    """Return a bookie of the manifest, its path as what it was: the folder is removed."""
    path = Path(bookie["path"]).relative_to(top)
    return {**bookie, "path": f"{path} of the demo, removed at its end"}
