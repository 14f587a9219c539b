"""bkstore load: a new index, RocksDB or index files, from a bookie's part of a dump."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.cli.datasets.dump_location import DUMP_HELP, parse_dump_location
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.offline.load import LoadProgress, LoadResult

SPARK_ROWS = 1 << 28
"""Rows from which --engine auto uses Spark, if installed: some minutes of one process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("dump", metavar="DUMP", type=parse_dump_location, help=DUMP_HELP)
    add("out", metavar="DST", type=Path, help="a new or empty folder")
    add("--to", choices=("rocksdb", "idx"), required=True, help="the layout")
    add("--bookie", metavar="NAME", help="bookie to load, if DUMP has several")
    add(
        "--directories",
        metavar="N",
        type=int,
        help="number of the bookie's ledger directories, if DUMP has no manifest (default 1)",
    )
    add(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare each row and state of the index with the dump (default)",
    )
    add(
        "--engine",
        choices=("auto", "local", "spark"),
        default="auto",
        help="one process, or Spark (auto: Spark above 2^28 rows, if it is installed)",
    )
    add("--master", metavar="URL", default="local[*]", help="where Spark runs (default: here)")
    add("--partitions", metavar="N", type=int, help="number of pieces that Spark writes")


def run(args: argparse.Namespace) -> int:
    """Load and print the row counts; the exit code is 1 if not all data could be dumped."""
    if args.directories is not None and args.directories < 1:
        raise InvalidArgument(f"--directories {args.directories}: must be 1 or more")
    result = _load_with_spark(args) if _wants_spark(args) else _load_locally(args)
    comparison = "each row and state compared" if result.compared else "not compared"
    duplicates = ""
    if result.duplicates:
        duplicates = f", {format_count(result.duplicates, 'duplicate')} skipped"
    print_stderr(
        f"{args.out}: {format_count(result.rows, 'entry', 'entries')} of "
        f"{format_count(result.ledgers, 'ledger')} of bookie "
        f"{result.bookie} ({result.layout}){duplicates}; {comparison}"
    )
    return report_findings(result.findings)


def _wants_spark(args: argparse.Namespace) -> bool:
    """Return whether Spark loads the dump: if asked to, or by its number of rows if installed."""
    if args.engine != "auto" or find_spec("pyspark") is None:
        return bool(args.engine == "spark")
    from bkstore.offline.load.dump_rows import open_load_source

    return open_load_source(args.dump, args.bookie, args.directories).rows >= SPARK_ROWS


def _load_locally(args: argparse.Namespace) -> LoadResult:
    """Load without Spark, with a progress bar."""
    from bkstore.offline.load import load

    with work_progress("row") as show_progress:

        def progress(state: LoadProgress) -> None:
            if show_progress is not None:
                show_progress(state.step, state.done, state.total, state.rows)

        return load(args.dump, args.out, args.to, progress, **_shared_options(args))


def _load_with_spark(args: argparse.Namespace) -> LoadResult:
    """Load with Spark, for dumps that take one process many minutes."""
    require_packages("load with Spark", "pyspark", "pandas", "pyarrow")
    from bkstore.offline.load.dump_rows import open_load_source
    from bkstore.spark.load import load as spark_load
    from bkstore.spark.session import local_session

    open_load_source(args.dump, args.bookie, args.directories)  # reports errors before Spark starts
    with local_session("bkstore load", args.master, fast_start=False) as spark:
        spark.sparkContext.setLogLevel("FATAL")  # failures are reported in one line
        options = {**_shared_options(args), "partitions": args.partitions}
        return spark_load(spark, args.dump, args.out, args.to, **options)


def _shared_options(args: argparse.Namespace) -> dict[str, Any]:
    return {"bookie": args.bookie, "directories": args.directories, "compare": args.compare}
