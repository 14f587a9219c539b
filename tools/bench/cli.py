"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bkstore.files.user_outputs import check_output, write_output
from tools.bench.measure import Context, Row, run_row
from tools.bench.report import FORMAT, environment, markdown, print_document
from tools.bench.rows import ROWS

__all__ = ["main"]

CLOCK = "cpu: time.thread_time of the measuring thread; wall: time.perf_counter; seconds a run"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure bkstore's hot paths beside what they must beat.",
    )
    parser.add_argument("--row", action="append", metavar="NAME", help="only this row; repeatable")
    parser.add_argument("--rounds", type=_positive, default=5, help="samples a side (default 5)")
    parser.add_argument("--size", type=float, default=1.0, help="scale of the data (default 1.0)")
    parser.add_argument("--seed", type=int, default=20260801, help="seed of the random data")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole result here")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--long", action="store_true", help="the long rows as well")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _chosen(parser: argparse.ArgumentParser, names: list[str] | None, long: bool) -> list[Row]:
    known = {row.name: row for row in ROWS}
    for name in names or ():
        if name not in known:
            parser.error(f"no row {name!r}; there are {', '.join(known)}")
    if names:
        return [row for row in ROWS if row.name in names]
    return [row for row in ROWS if long or not row.long]


def _run(rows: list[Row], arguments: argparse.Namespace, command: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "format": FORMAT,
        "command": command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **environment(),
        "seed": arguments.seed,
        "size": arguments.size,
        "rounds": arguments.rounds,
        "clock": CLOCK,
        "rows": [],
    }
    begin = time.perf_counter()
    for row in rows:
        print(f"{row.name} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="bkstore-bench-") as top:
            context = Context(Path(top), arguments.size, arguments.seed)
            cases = list(run_row(row, context, arguments.rounds))
        document["rows"].append(
            {"name": row.name, "title": row.title, "method": row.method, "cases": cases}
        )
    document["seconds"] = time.perf_counter() - begin
    return document


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 0 if it ran, whatever the ratios."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    rows = _chosen(parser, arguments.row, arguments.long or arguments.list)
    if arguments.list:
        for row in rows:
            print(f"{row.name:20} {row.title}{' (long)' if row.long else ''}")
        return 0
    if arguments.json is not None:
        check_output(arguments.json)  # what cannot be written is noticed now, not afterwards
    words = sys.argv[1:] if argv is None else argv
    document = _run(rows, arguments, shlex.join(["python", "-m", "tools.bench", *words]))
    print(markdown(document)) if arguments.markdown else print_document(document)
    if arguments.json is not None:
        write_output(arguments.json, (json.dumps(document, indent=1) + "\n").encode())
    return 0
