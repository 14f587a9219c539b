"""Arguments that choose a ledger: a word after DIR, as in the bookie shell, or an option."""

from __future__ import annotations

import argparse
import re

from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, SystemRefused
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.read_only.bookie_dir import BookieDir

_LEDGER_ID_FORMS = "decimal, 0x hex, 32 hex digits (with scope) or UUID"
_ID_OPTIONS = {
    "--ledger-id": "ledger_id",
    "--ledger-qualified-name": "ledger_qualified_name",
}


def add_ledger_argument(
    parser: Parser, *, with_range: bool = False, is_required: bool = True
) -> None:
    """Add LEDGER, A:B after it if `with_range`, and the options that may replace LEDGER. Unless
    `is_required`, none of them may be given: the command has another way to choose ledgers."""
    parser.add_argument("ledger", metavar="LEDGER", nargs="?", help=_LEDGER_ID_FORMS)
    if with_range:
        parser.add_argument(
            "entries",
            metavar="A:B",
            nargs="?",
            help="only entries A..B, both inclusive (default: all)",
        )
    add_ledger_options(parser, "the same as LEDGER")
    parser.intermixed = True  # allows DIR --live LEDGER
    parser.checks += (_check_named_once,) if is_required else (_check_not_named_twice,)


def add_ledger_options(parser: argparse.ArgumentParser, id_help: str = _LEDGER_ID_FORMS) -> None:
    """Add the options that choose a ledger."""
    choices = parser.add_mutually_exclusive_group()
    add = choices.add_argument
    add("--ledger-id", metavar="N", help=id_help)
    add("--ledger-qualified-name", metavar="HEX", help="32 hex digits: scope, then ledger")
    parser.add_argument(
        "--ledger-scope-id", metavar="S", help="scope of a decimal or 0x ledger id (default 0)"
    )


def add_scope_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the scope whose ledgers are listed."""
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--ledger-scope-id", metavar="S", help="only this scope (default 0)")
    scope.add_argument("--all-scopes", action="store_true", help="ledgers of every scope")


def _check_named_once(parser: Parser, args: argparse.Namespace) -> None:
    """Exit with a usage error unless exactly one ledger is named. If LEDGER looks like A:B, it is
    taken as the range, and an option must name the ledger."""
    takes_range = hasattr(args, "entries")
    if takes_range and args.entries is None and ":" in (args.ledger or ""):
        args.ledger, args.entries = None, args.ledger
    if not is_ledger_named(args):
        parser.error(f"one of the arguments LEDGER {' '.join(_ID_OPTIONS)} is required")
    _check_not_named_twice(parser, args)


def is_ledger_named(args: argparse.Namespace) -> bool:
    """Return whether the arguments name a ledger."""
    return getattr(args, "ledger", None) is not None or bool(_given_id_options(args))


def _given_id_options(args: argparse.Namespace) -> list[str]:
    return [option for option, dest in _ID_OPTIONS.items() if getattr(args, dest) is not None]


def _check_not_named_twice(parser: Parser, args: argparse.Namespace) -> None:
    given_options = _given_id_options(args)
    if args.ledger is not None and given_options:
        parser.error(f"argument LEDGER: not allowed with argument {given_options[0]}")


def scope_from_args(args: argparse.Namespace) -> int:
    """Return --ledger-scope-id, unsigned, by default 0; raises `InvalidArgument`."""
    scope_text = args.ledger_scope_id
    if scope_text is None:
        return 0
    if not re.fullmatch(r"-?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", scope_text):
        raise InvalidArgument(f"not a ledger scope id: {scope_text[:60]!r} (decimal or 0x hex)")
    base = 16 if scope_text[:2] in ("0x", "0X") else 10
    return LedgerId(int(scope_text, base), 0).scope


def ledger_from_args(args: argparse.Namespace) -> LedgerId:
    """Return the ledger id that the arguments name; raises `InvalidArgument` for contradictions."""
    qualified_name, word = args.ledger_qualified_name, getattr(args, "ledger", None)
    if qualified_name is None:
        ledger = LedgerId.parse(args.ledger_id if word is None else word, scope_from_args(args))
    elif len(qualified_name) == 32:
        ledger = LedgerId.parse(qualified_name)
    else:
        raise InvalidArgument(f"not a qualified name: {qualified_name!r} (32 hex digits)")
    if args.ledger_scope_id is not None and ledger.scope != scope_from_args(args):
        reason = f"is of scope {ledger.scope}, but --ledger-scope-id differs"
        raise InvalidArgument(f"ledger {ledger} {reason}")
    return ledger


def only_ledger_from_args(args: argparse.Namespace) -> LedgerId | None:
    """Return the ledger that the options choose, None without; raises `InvalidArgument`."""
    if args.ledger_id is not None or args.ledger_qualified_name is not None:
        return ledger_from_args(args)
    if args.ledger_scope_id is not None:
        raise InvalidArgument("--ledger-scope-id needs a ledger")
    return None


def index_has_ledger(bookie: BookieDir, ledger: LedgerId) -> bool:
    """Return whether the index has the ledger; False if the index cannot be read."""
    try:
        return bookie.index.has_ledger(ledger)
    except SystemRefused:  # such as no memory, which says nothing about the index
        raise
    except BkstoreError:
        return False


def find_ledger(bookie: BookieDir, ledger: LedgerId) -> bool | Finding:
    """Return whether the index has the ledger, or the damage that hides whether it has."""
    try:
        return bookie.index.has_ledger(ledger)
    except CorruptionError as error:
        return Finding.of(error, ledger)


def report_unknown(ledger: LedgerId, presence: bool | Finding) -> int:
    """Return 0 if the index has the ledger; otherwise, or if damage hides whether it has, print a
    message to stderr and return 1. `presence` is the result of `find_ledger`. This comes after the
    ledger's rows: an error of reading them may be the same damage."""
    if isinstance(presence, Finding):
        return report_findings([presence])
    return 0 if presence else print_unknown_ledger(ledger)


def print_unknown_ledger(ledger: LedgerId) -> int:
    """Print to stderr that the ledger is unknown, and return the exit code, 1."""
    print_stderr(f"ledger {ledger} is not on this bookie")
    return 1
