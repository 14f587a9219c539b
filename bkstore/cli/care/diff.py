"""bkstore diff: what two bookies do not have alike: ledgers, entries as ranges, states."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.availability import Availability
from bkstore.cli.screen.cells import MOST_RANGES, ranges_cell
from bkstore.cli.terminal.exit_codes import verdict
from bkstore.cli.terminal.ledger_options import add_ledger_options, chosen_ledger
from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.needed_packages import require_packages
from bkstore.cli.terminal.output_options import add_output, chosen_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.progress import work_progress
from bkstore.cli.terminal.shared_options import (
    add_opening,
    open_bookie,
    report_findings,
    until_unchanged,
)
from bkstore.counts import counted
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import DIFFERENCES, Table

if TYPE_CHECKING:
    from bkstore.offline.diff import Difference, Side

__all__ = ["MOST_RANGES", "add_arguments", "run"]


_ON_SCREEN, _SHOWN = 6, 4  # of more ranges than fit a line, the first are shown
_ROWS = 1 << 8


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    for name in "ab":
        what = "a ledger directory, a folder of several, a bk_server.conf, or a dump"
        parser.add_argument(name, metavar=name.upper(), type=Path, help=what)
    for name in "ab":
        what = f"which bookie of {name.upper()}, where that is a dump of several"
        parser.add_argument(f"--bookie-{name}", metavar="NAME", help=what)
    add_opening(parser)
    add_ledger_options(parser, "only this ledger")
    add_output(parser, DIFFERENCES)


def run(args: argparse.Namespace) -> int:
    """Print a row for each difference.

    Exit code 1 if there are any, or what cannot be read, 3 where no ledger was compared.
    """
    from bkstore.offline.diff import diff

    only = _chosen(args)
    findings: list[Finding] = []
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        show = stack.enter_context(work_progress("ledgers that differ"))
        bookies: list[BookieDir] = []
        sides = [_side(args, name, stack, bookies) for name in "ab"]

        def watch(ledger: LedgerId, differs: bool) -> None:
            seen["ledgers"] += 1
            seen["differ"] += differs
            if show is not None:
                show(f"ledger {ledger}", seen["ledgers"], seen["ledgers"], seen["differ"])

        found = diff(sides[0], sides[1], findings, only, watch)
        tables = _tables(found, chosen_output(args) == "table")
        write_output(args, DIFFERENCES, until_unchanged(tables, *bookies))
    code = report_findings(findings)
    if only is not None and not seen["ledgers"]:
        tell(f"ledger {only} is not known in either")
        return 1
    tell(f"{counted(seen['ledgers'], 'ledger')} compared, {seen['differ']} differ")
    return verdict(findings=bool(seen["differ"] or code), checked=bool(seen["ledgers"]))


def _chosen(args: argparse.Namespace) -> LedgerId | None:
    if args.ledger_id is not None or args.ledger_qualified_name is not None:
        return chosen_ledger(args)
    if args.ledger_scope_id is not None:
        raise InvalidArgument("--ledger-scope-id needs a ledger")
    return None


def _side(args: argparse.Namespace, name: str, stack: ExitStack, bookies: list[BookieDir]) -> Side:
    from bkstore.offline.diff import DirectorySide, DumpSide, is_dump

    path: Path = getattr(args, name)
    bookie: str | None = getattr(args, f"bookie_{name}")
    if is_dump(path):
        require_packages("reading a dump", "pyarrow")
        return DumpSide(path, bookie)
    if bookie is not None:
        raise InvalidArgument(f"--bookie-{name}: {path} is no dump")
    opened = stack.enter_context(open_bookie(args, path))
    bookies.append(opened)
    return DirectorySide(opened)


def _tables(found: Iterable[Difference], shown: bool) -> Iterator[Table]:
    """Yield differences as tables while they come; `shown` on a screen."""
    rows: list[tuple[Any, ...]] = []
    for each in found:
        rows.append(_row(each, shown))
        if len(rows) == _ROWS:
            yield Table.from_rows(DIFFERENCES, rows)
            rows = []
    if rows:
        yield Table.from_rows(DIFFERENCES, rows)


def _row(found: Difference, shown: bool) -> tuple[Any, ...]:
    ids = (*found.ledger.signed, found.ledger.qualified_name)
    here = found.entries
    told: tuple[Any, ...] = (None,) * 5
    if here is not None:
        ends = (len(here), here.first_entry, here.last_entry)
        told = (*ends, _ranges(here, shown), here.groups.tolist())
    return (found.kind, *ids, found.only_in, found.a, found.b, *told)


def _ranges(some: Availability, shown: bool) -> list[list[int]] | None:
    return ranges_cell(some, shown, _ON_SCREEN, _SHOWN)
