"""Secrets on the command line: passwords are best read from elsewhere, keys are shown if asked.

Other users of a machine can see the arguments of a command while it runs, and whoever comes by
can see a screen.
"""

from __future__ import annotations

import argparse
import getpass
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.errors import InvalidArgument

if TYPE_CHECKING:
    from bkstore.network.settings import ServerSettings
    from bkstore.tables import Table
    from bkstore.wire.sasl import SaslUser, SaslUsers

PASSWORD_VARIABLE = "BKSTORE_PASSWORD"  # noqa: S105  # its name
_LONGEST = 1 << 16

_BOOKIE_SECTION, _CLIENT_SECTION = "Bookie", "BookKeeper"


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


def add_sasl_user(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add what says as whom bookies are asked."""
    parser.add_argument(
        "--jaas",
        metavar="FILE",
        type=Path,
        help="authenticate (SASL, DIGEST-MD5) as the user of a section of this JAAS file",
    )
    parser.add_argument(
        "--jaas-section",
        metavar="NAME",
        help=f"its section, as saslJaasClientSectionName ({_CLIENT_SECTION})",
    )


def chosen_sasl_user(args: argparse.Namespace) -> SaslUser | None:
    """Return the user that bookies are asked as; None: without authentication."""
    if args.jaas is None:
        if args.jaas_section is not None:
            raise InvalidArgument("--jaas-section needs --jaas")
        return None
    from bkstore.wire.sasl import SaslUser

    return SaslUser.from_jaas(args.jaas, args.jaas_section or _CLIENT_SECTION)


def add_sasl_users(parser: argparse.ArgumentParser) -> None:
    """Add what says whom a bookie lets in."""
    parser.add_argument(
        "--jaas",
        metavar="FILE",
        type=Path,
        help="clients must authenticate (SASL, DIGEST-MD5) as a user of this JAAS file",
    )
    parser.add_argument(
        "--jaas-section",
        metavar="NAME",
        help=f"its section with the users, as saslJaasBookieSectionName ({_BOOKIE_SECTION})",
    )
    parser.add_argument(
        "--sasl-allowed-ids",
        metavar="REGEX",
        help="which of the users may connect, as saslJaasClientAllowedIds (.*bookkeeper.*)",
    )


def chosen_sasl_users(args: argparse.Namespace, settings: ServerSettings) -> SaslUsers | None:
    """Return whom a bookie lets in; None: everybody.

    Options go before what its conf says, whose `settings` are. `InvalidArgument` where nothing
    says who the users are.
    """
    if args.jaas is None:
        if settings.sasl:
            raise InvalidArgument(
                f"{args.directory}: bookieAuthProviderFactoryClass asks for SASL: name the file "
                "that java.security.auth.login.config names in the JVM: --jaas FILE"
            )
        if args.jaas_section is not None or args.sasl_allowed_ids is not None:
            raise InvalidArgument("--jaas-section and --sasl-allowed-ids need --jaas")
        return None
    from bkstore.wire.sasl import SaslUsers
    from bkstore.wire.sasl.credentials import ALLOWED_IDS

    allowed = args.sasl_allowed_ids
    if allowed is None:
        allowed = settings.sasl_allowed_ids
    return SaslUsers.from_jaas(
        args.jaas,
        args.jaas_section or settings.jaas_section or _BOOKIE_SECTION,
        ALLOWED_IDS if allowed is None else allowed,
    )


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
    from bkstore.tables.table import Repeated

    return type(table)(table.schema, {**table.columns, "master_key": Repeated(None, len(table))})
