"""bkstore analyze: analyses of a dump: losses, garbage, growth, as tables and a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from bkstore.cli.datasets.dump_location import DUMP_HELP, parse_dump_location
from bkstore.cli.owners.owner_options import add_owner_filters
from bkstore.cli.pulsar.age_options import add_as_of, add_grace
from bkstore.cli.pulsar.location_options import PULSAR_COPY_HELP, parse_pulsar
from bkstore.cli.terminal.metadata_options import (
    METADATA_HELP,
    parse_metadata_location,
)
from bkstore.cli.terminal.output_options import add_columns
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.table_output import FORMATS

# A copy of the names in `bkstore.offline.analyses` (a test compares them), which is slow to import.
_ANALYSES = (
    "violations",
    "violations_by_owner",
    "homeless",
    "ledger_health",
    "surplus",
    "orphans",
    "leaked_ledgers",
    "holes",
    "bytes_by_bookie",
    "bytes_by_scope",
    "bytes_by_owner",
    "bytes_by_ledger",
    "log_occupancy",
    "fragmentation",
    "sequences",
    "comparison",
)
_OWNER_NAMES = ("topic", "namespace", "tenant", "component")
_PINNED_THRESHOLD = 0.2


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("dump", metavar="DUMP", type=parse_dump_location, help=DUMP_HELP)
    add(
        "--metadata",
        metavar="METADATA",
        type=parse_metadata_location,
        help=f"ledger metadata: {METADATA_HELP}",
    )
    add(
        "--other",
        metavar="DUMP2",
        type=parse_dump_location,
        help="a later dump to compare with DUMP",
    )
    add("--pulsar", metavar="LOCATION", type=parse_pulsar, help=PULSAR_COPY_HELP)
    add(
        "--engine",
        choices=("auto", "local", "spark"),
        default="auto",
        help="engine of the analyses (default: DuckDB on this machine if it is installed)",
    )
    add("--master", metavar="URL", help="where Spark runs (default: here)")
    add("--only", metavar="NAME[,NAME]", help=f"only these analyses: {', '.join(_ANALYSES)}")
    add("--top", metavar="N", type=int, help="only the N top rows per table")
    add("--by", metavar="COLUMN", help="column for --top to sort by, with one --only")
    add(
        "--pinned",
        metavar="PART",
        type=float,
        default=_PINNED_THRESHOLD,
        help=f"occupancy below which a log counts as pinned (default {_PINNED_THRESHOLD:g})",
    )
    add(
        "--group-by",
        choices=_OWNER_NAMES,
        default=_OWNER_NAMES[0],
        help="what analyses by owner have a row for (default topic)",
    )
    add_grace(parser)
    add_as_of(parser)
    add("--out", metavar="DIR", type=Path, help="a new folder for the tables")
    add("--report", metavar="OUT.html", type=Path, help="write the HTML page")
    add("--format", choices=FORMATS, help="default: table on stdout, parquet in DIR")
    add_columns(parser)
    add_owner_filters(parser)


def run(args: argparse.Namespace) -> int:
    """Print the summary, or the tables of --only; the exit code is 1 if there are findings."""
    from bkstore.cli.datasets.run_analyses import run_analyses

    return run_analyses(args)
