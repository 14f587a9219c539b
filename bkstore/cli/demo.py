"""bkstore demo: from bookie directories to a dump to Spark, on data it makes (or yours).

Without --bookie it makes bookies of every layout in a temp directory, punches holes, and
checks that Spark finds exactly those.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.availability import Availability
from bkstore.cli.demo_data import make_bookies
from bkstore.cli.options import report_findings
from bkstore.ids import LedgerId
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex
from bkstore.offline.dump import DumpResult, dump
from bkstore.storage.directory import BookieDir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["add_arguments", "run"]

_SHOWN = 8
Punched = dict[tuple[str, LedgerId], Availability]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--bookie", metavar="DIR", type=Path, help="a bookie directory to read instead of demo data"
    )
    parser.add_argument("--live", action="store_true", help="read a directory that is in use")


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if Spark's answer is not what was punched."""
    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bkstore-demo-")))
        punched: Punched | None = None
        paths = [args.bookie]
        if args.bookie is None:
            _say("1. Making bookies of every layout, with holes")
            punched = make_bookies(top / "bookies")
            paths = sorted((top / "bookies").iterdir())
        bookies = [stack.enter_context(BookieDir(path, live=args.live)) for path in paths]
        _say("2. Availability, read-only, from the index alone")
        for bookie in bookies:
            _show_availability(bookie)
        _show_layered(bookies[0])
        _say("3. Dumping the indexes to Parquet")
        result = dump(bookies, top / "dump")
        _show_dump(top / "dump", result)
        code = _ask_spark(top / "dump", punched)
        return max(code, report_findings(result.findings))


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)  # noqa: T201


def _show_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for at, name in enumerate(names):
        numeric = bool(rows) and isinstance(rows[0][at], int)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    Console(width=140, highlight=False).print(table)


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


def _show_layered(bookie: BookieDir) -> None:
    """Lay a memtable with one unflushed entry over the first ledger, as sorted storage does."""
    ledgers = bookie.index.ledgers()
    if not ledgers:
        return
    with MemtableIndex() as top:
        last = bookie.index.last_entry(ledgers[0])
        top.put(ledgers[0], 0 if last is None else last + 1, 1028)
        merged = LayeredSource(top, bookie.index)
        print(  # noqa: T201
            f"\nLedger {ledgers[0]} of {bookie.bookie_id} with one unflushed entry above it: "
            f"{len(merged.availability(ledgers[0]))} entries, last {merged.last_entry(ledgers[0])}"
        )


def _show_dump(out: Path, result: DumpResult) -> None:
    size = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    told = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
    print(f"{told} in {size:,} bytes")  # noqa: T201


def _ask_spark(dumped: Path, punched: Punched | None) -> int:
    from bkstore.spark import holes, local_session, read_dump, totals

    _say("4. Asking Spark")
    with local_session("bkstore demo") as spark:
        tables = read_dump(spark, dumped)
        _show_frame(totals(spark, tables))
        _say("Ledgers with holes, as Spark found them")
        found = holes(spark, tables)
        rows = found.collect()
        _show_frame(found.drop("scope_id", "ledger_id"))
    return 0 if punched is None else _compare(rows, punched)


def _show_frame(frame: DataFrame) -> None:
    rows = [tuple(row) for row in frame.collect()]
    if rows:
        _show_rows(frame.columns, rows)
    else:
        print("none")  # noqa: T201


def _compare(rows: list[Any], punched: Punched) -> int:
    found = {
        (row.bookie, LedgerId.from_signed(row.scope_id, row.ledger_id)): row.holes for row in rows
    }
    expected = {key: len(lost) for key, lost in punched.items()}
    if found == expected:
        total = sum(expected.values())
        _say(f"Spark found all {total} holes in {len(expected)} ledgers, and no others.")
        return 0
    _say(f"Spark's answer differs from what was punched: {expected} was")
    return 1
