"""Options that several commands share, and opening the directory they name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.table_output import FORMATS
from bkstore.errors import InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.index.api import Finding
from bkstore.storage.read_only.bookie_dir import BookieDir

__all__ = [
    "Command",
    "add_directory",
    "add_ledger",
    "add_output",
    "chosen_ledger",
    "chosen_scope",
    "note_unknown",
    "open_bookie",
    "parse_range",
    "report_findings",
]

Command = Callable[[argparse.Namespace], int]


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add DIR and how to open it."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf",
    )
    add_opening(parser)


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how directories are opened."""
    parser.add_argument("--live", action="store_true", help="read a directory that is in use")
    parser.add_argument(
        "--layout", choices=("idx", "rocksdb"), help="which index to read where both are present"
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        help="where the directories of a bk_server.conf were copied to (default: beside it)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add --format and -o."""
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="write there instead of to stdout"
    )


def add_ledger(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the ledger choice."""
    which = parser.add_mutually_exclusive_group(required=required)
    which.add_argument(
        "--ledger-id", metavar="N", help="decimal, 0x hex, 32 hex digits (with scope) or UUID"
    )
    which.add_argument(
        "--ledger-qualified-name", metavar="HEX", help="32 hex digits: scope, then ledger"
    )
    parser.add_argument(
        "--ledger-scope-id", metavar="S", help="scope of a decimal or 0x ledger id (default 0)"
    )


def chosen_scope(args: argparse.Namespace) -> int:
    """Return --ledger-scope-id as an unsigned number, 0 if it was not given."""
    text = args.ledger_scope_id
    if text is None:
        return 0
    if not re.fullmatch(r"-?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", text):
        raise InvalidArgument(f"not a ledger scope id: {text[:60]!r} (decimal or 0x hex)")
    return LedgerId(int(text, 16 if text[1:2] in "xX" and len(text) > 2 else 10), 0).scope


def chosen_ledger(args: argparse.Namespace) -> LedgerId:
    """Return the ledger that the options name."""
    name = args.ledger_qualified_name
    if name is None:
        ledger = LedgerId.parse(args.ledger_id, chosen_scope(args))
    elif len(name) == 32:
        ledger = LedgerId.parse(name)
    else:
        raise InvalidArgument(f"not a qualified name: {name!r} (32 hex digits)")
    if args.ledger_scope_id is not None and ledger.scope != chosen_scope(args):
        raise InvalidArgument(
            f"ledger {ledger} is of scope {ledger.scope}, --ledger-scope-id says otherwise"
        )
    return ledger


def parse_range(text: str) -> tuple[int, int]:
    """Return (first, last) of an inclusive range of entry ids, written A:B."""
    words = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,19})", text)
    if words is None:
        raise InvalidArgument(f"not a range of entry ids: {text[:60]!r} (A:B, both inclusive)")
    first, last = words.groups()
    if not int(first) <= int(last) <= MAX_ENTRY_ID:
        raise InvalidArgument(f"range {text} is empty or beyond entry id {MAX_ENTRY_ID}")
    return int(first), int(last)


def open_bookie(
    args: argparse.Namespace, directory: Path | None = None, *, needs_index: bool = True
) -> BookieDir:
    """Open the directory read-only, as the options say; output into it is refused."""
    path = directory or args.directory
    bookie = BookieDir(
        path, live=args.live, layout=args.layout, needs_index=needs_index, root=args.root
    )
    if bookie.unopened is not None:
        message = f"note: the order of the directories cannot be checked: {bookie.unopened}"
        tell(message)
    if getattr(args, "output", None) is not None:
        try:
            bookie.refuse_output(args.output)
        except InvalidArgument:
            bookie.close()
            raise
    return bookie


def note_unknown(bookie: BookieDir, ledger: LedgerId) -> None:
    """Say on stderr that a ledger is not known here, if so: its empty answer is the truth."""
    if ledger not in bookie.index.ledgers(ledger.scope):
        tell(f"note: ledger {ledger} is not known here")


def report_findings(findings: Iterable[Finding]) -> int:
    """Print findings to stderr, one a line; return the exit code, 1 if there are any."""
    count = 0
    for count, finding in enumerate(findings, 1):  # noqa: B007
        tell(f"{finding.severity}: {finding}")
    return 1 if count else 0
