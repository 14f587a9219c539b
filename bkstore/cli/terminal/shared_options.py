"""Options for a command's bookie directory, how it is opened, and how findings are printed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, SystemRefused
from bkstore.ids import MAX_ENTRY_ID
from bkstore.index.api import Finding
from bkstore.index.damage_runs import add_unreported
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import Table

RunFunction = Callable[[argparse.Namespace], int]


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add DIR and the options for opening it."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf",
    )
    add_opening_options(parser)


def add_opening_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for opening bookie directories."""
    add = parser.add_argument
    add("--live", action="store_true", help="read a directory that is in use")
    add("--layout", choices=("idx", "rocksdb"), help="which index to read where both are present")
    add(
        "--root",
        metavar="DIR",
        type=Path,
        help="folder with the copied directories of a bk_server.conf (default: next to it)",
    )


def parse_range(text: str) -> tuple[int, int]:
    """Return (first, last) of an inclusive range of entry ids, written A:B; raises
    `InvalidArgument` if it is malformed, empty or too large."""
    match = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,19})", text)
    if match is None:
        raise InvalidArgument(f"not a range of entry ids: {text[:60]!r} (A:B, both inclusive)")
    first, last = match.groups()
    if not int(first) <= int(last) <= MAX_ENTRY_ID:
        raise InvalidArgument(f"range {text} is empty or beyond entry id {MAX_ENTRY_ID}")
    return int(first), int(last)


def _open_options(args: argparse.Namespace) -> dict[str, Any]:
    return {"live": args.live, "layout": args.layout, "root": args.root}


def open_bookie(
    args: argparse.Namespace, directory: Path | None = None, *, needs_index: bool = True
) -> BookieDir:
    """Open the directory (default: DIR) read-only with the command's options; `InvalidArgument` if
    -o lies in it. Prints a note if the order of several directories cannot be checked."""
    path, options = directory or args.directory, _open_options(args)
    bookie = BookieDir(path, needs_index=needs_index, **options)
    if bookie.index_error is not None:
        reason = bookie.index_error
        print_stderr(f"note: the order of the directories cannot be checked: {reason}")
    if getattr(args, "output", None) is not None:
        try:
            bookie.refuse_output(args.output)
        except InvalidArgument:
            bookie.close()
            raise
    return bookie


def refuse_output_in(args: argparse.Namespace, directories: Iterable[Path]) -> None:
    """Raise `InvalidArgument` if -o lies in one of the directories, before any work is done; one
    that cannot be opened is skipped, and reported when it is next opened."""
    if args.output is None:
        return
    for directory in directories:
        try:
            with BookieDir(directory, needs_index=False, **_open_options(args)) as bookie:
                bookie.refuse_output(args.output)
        except (InvalidArgument, SystemRefused):
            raise
        except BkstoreError:
            continue  # raised and reported again when its index is opened


def check_unchanged_at_end(tables: Iterable[Table], *bookies: BookieDir | None) -> Iterator[Table]:
    """Yield the tables, then raise `DirectoryInUse` if a file of the bookies has changed: an output
    file with data read during a change is not completed."""
    yield from tables
    for bookie in bookies:
        if bookie is not None:
            bookie.check_unchanged()


def report_unreadable(
    error: CorruptionError, findings: list[Finding], *, is_only_file: bool
) -> None:
    """Append the error of reading one of several files to the findings, so that the others are
    read; raise it if the command reads no other."""
    if is_only_file:
        raise error
    add_unreported(findings, [Finding.of(error)])


def report_findings(findings: Iterable[Any], prefix: str = "") -> int:
    """Print findings to stderr, a line each behind `prefix`, and return the exit code: 1 if there
    are any. Damage that several ledgers or readers met is one line."""
    printed_lines: set[str] = set()
    for finding in findings:
        line = f"{prefix}{finding.severity}: {finding}"
        if line not in printed_lines:
            print_stderr(line)
        printed_lines.add(line)
    return int(bool(printed_lines))
