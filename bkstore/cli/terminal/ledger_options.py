"""Saying which ledger is meant: behind DIR, as in the bookie shell, or by an option."""

from __future__ import annotations

import argparse
import re

from bkstore.cli.terminal.messages import tell
from bkstore.cli.terminal.parser import Parser
from bkstore.errors import BkstoreError, InvalidArgument, SystemRefused
from bkstore.ids import LedgerId
from bkstore.storage.read_only.bookie_dir import BookieDir

_FORMS = "decimal, 0x hex, 32 hex digits (with scope) or UUID"


def add_ledger(parser: Parser, *, ranged: bool = False) -> None:
    """Add LEDGER, `ranged` A:B behind it, and the options that say the same; DIR comes first."""
    parser.add_argument("ledger", metavar="LEDGER", nargs="?", help=_FORMS)
    if ranged:
        parser.add_argument(
            "entries",
            metavar="A:B",
            nargs="?",
            help="only entries A..B, both inclusive (default: all)",
        )
    add_ledger_options(parser, "the same as LEDGER")
    parser.intermixed = True  # DIR --live LEDGER
    parser.checks += (_check_named_once,)


def add_ledger_options(parser: argparse.ArgumentParser, what: str = _FORMS) -> None:
    """Add the options that choose a ledger."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--ledger-id", metavar="N", help=what)
    which.add_argument(
        "--ledger-qualified-name", metavar="HEX", help="32 hex digits: scope, then ledger"
    )
    parser.add_argument(
        "--ledger-scope-id", metavar="S", help="scope of a decimal or 0x ledger id (default 0)"
    )


def _check_named_once(parser: Parser, args: argparse.Namespace) -> None:
    """End with the parser's error unless one ledger is named; ``DIR A:B`` leaves it to options."""
    if getattr(args, "entries", "") is None and ":" in (args.ledger or ""):
        args.ledger, args.entries = None, args.ledger
    options = {
        "--ledger-id": args.ledger_id,
        "--ledger-qualified-name": args.ledger_qualified_name,
    }
    given = [option for option, value in options.items() if value is not None]
    if args.ledger is None and not given:
        parser.error(f"one of the arguments LEDGER {' '.join(options)} is required")
    if args.ledger is not None and given:
        parser.error(f"argument LEDGER: not allowed with argument {given[0]}")


def chosen_scope(args: argparse.Namespace) -> int:
    """Return --ledger-scope-id as an unsigned number, 0 if it was not given."""
    text = args.ledger_scope_id
    if text is None:
        return 0
    if not re.fullmatch(r"-?[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", text):
        raise InvalidArgument(f"not a ledger scope id: {text[:60]!r} (decimal or 0x hex)")
    return LedgerId(int(text, 16 if text[1:2] in "xX" and len(text) > 2 else 10), 0).scope


def chosen_ledger(args: argparse.Namespace) -> LedgerId:
    """Return the ledger that the arguments name."""
    name, word = args.ledger_qualified_name, getattr(args, "ledger", None)
    if name is None:
        ledger = LedgerId.parse(args.ledger_id if word is None else word, chosen_scope(args))
    elif len(name) == 32:
        ledger = LedgerId.parse(name)
    else:
        raise InvalidArgument(f"not a qualified name: {name!r} (32 hex digits)")
    if args.ledger_scope_id is not None and ledger.scope != chosen_scope(args):
        raise InvalidArgument(
            f"ledger {ledger} is of scope {ledger.scope}, --ledger-scope-id says otherwise"
        )
    return ledger


def is_known(bookie: BookieDir, ledger: LedgerId) -> bool:
    """Return whether the index knows a ledger; not where there is none that can be read."""
    try:
        return bookie.index.has_ledger(ledger)
    except SystemRefused:
        raise
    except BkstoreError:
        return False


def report_unknown(bookie: BookieDir, ledger: LedgerId) -> int:
    """Say on stderr that a ledger is not known here, if so; return the exit code, 1 if so."""
    return 0 if bookie.index.has_ledger(ledger) else tell_unknown(ledger)


def tell_unknown(ledger: LedgerId) -> int:
    """Say on stderr that a ledger is not known here; return the exit code, 1."""
    tell(f"ledger {ledger} is not known here")
    return 1
