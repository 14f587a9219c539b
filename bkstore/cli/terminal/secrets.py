"""Secrets on the command line: a password is best read from elsewhere, keys are shown if asked.

Other users of a machine can see the arguments of a command while it runs, and whoever comes by
can see a screen.
"""

from __future__ import annotations

import argparse
import getpass
import os
import warnings
from pathlib import Path

from bkstore.errors import InvalidArgument
from bkstore.tables import Table
from bkstore.tables.table import Repeated

__all__ = [
    "PASSWORD_VARIABLE",
    "add_password",
    "add_show_keys",
    "chosen_password",
    "hide_keys",
    "secret_in",
]

PASSWORD_VARIABLE = "BKSTORE_PASSWORD"  # noqa: S105  # its name
_LONGEST = 1 << 16


def add_password(parser: argparse.ArgumentParser) -> None:
    """Add the ways to give a password."""
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="the ledger's password, which HMAC digests need, is in FILE (a line's end behind it "
        f"is not part of it); without any of these options, in the variable {PASSWORD_VARIABLE}",
    )
    ways.add_argument("--ask-password", action="store_true", help="ask for it at the terminal")
    ways.add_argument(
        "--password", help="the password itself, which other users of the machine can see"
    )


def chosen_password(args: argparse.Namespace) -> bytes | None:
    """Return the password that was given, None if there is none; may ask for it.

    Raises `InvalidArgument` without an answer or for a file too long, `OSError` for one that
    cannot be read. The variable counts only where digests are to be verified.
    """
    if args.password is not None:
        return os.fsencode(args.password)
    if args.password_file is not None:
        return secret_in(args.password_file)
    if args.ask_password:
        return _asked()
    given = os.environb.get(PASSWORD_VARIABLE.encode())
    return given if args.digest_type is not None else None


def secret_in(path: Path) -> bytes:
    """Return what a file has, without the end of its last line; it may be a pipe.

    Raises `InvalidArgument` for one that is too long, `OSError` for one that cannot be read.
    """
    with path.open("rb") as file:  # a pipe, too: the shell's <(...) is one
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise InvalidArgument(f"{path}: is longer than a secret can be ({_LONGEST} bytes)")
    return data.removesuffix(b"\n").removesuffix(b"\r")


def _asked() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", getpass.GetPassWarning)  # a pipe instead of a terminal
        try:
            return os.fsencode(getpass.getpass("Password of the ledger: "))
        except EOFError:
            raise InvalidArgument("--ask-password: no password was given") from None


def add_show_keys(parser: argparse.ArgumentParser) -> None:
    """Add --show-keys."""
    parser.add_argument(
        "--show-keys",
        action="store_true",
        help="give the master keys, with which ledgers can be written and fenced; "
        "master_key is null without it",
    )


def hide_keys(table: Table) -> Table:
    """Return the table with nulls for master keys."""
    return Table(table.schema, {**table.columns, "master_key": Repeated(None, len(table))})
