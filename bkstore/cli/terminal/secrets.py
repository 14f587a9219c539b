"""Options for passwords, SASL users and master keys.

Other users of a machine can see the arguments of a running command: a file, a terminal or the
environment is better for passwords. Master keys are printed only with --show-keys.
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
_MAX_SECRET_BYTES = 1 << 16

_BOOKIE_SECTION, _CLIENT_SECTION = "Bookie", "BookKeeper"


def add_digest_options(parser: argparse.ArgumentParser, type_help: str) -> None:
    """Add --digest-type with this help ("MAC" is HMAC), and the options that give a password."""
    from bkstore.formats.entry.digest import DIGEST_NUMBERS  # loads numpy

    parser.add_argument("--digest-type", choices=[*DIGEST_NUMBERS, "MAC"], help=type_help)
    password = parser.add_mutually_exclusive_group()
    add = password.add_argument
    add(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="read the ledger's password, needed for HMAC digests, from FILE (without "
        f"its line end); without these options, from the variable {PASSWORD_VARIABLE}",
    )
    add("--ask-password", action="store_true", help="prompt for the password")
    add("--password", help="the password itself, which other users of the machine can see")


def password_from_args(args: argparse.Namespace) -> bytes | None:
    """Return the password from the options, a prompt, or with --digest-type the environment, else
    None. Raises as `read_secret`, and `InvalidArgument` if the prompt gets no answer."""
    if args.password is not None:
        return os.fsencode(args.password)
    if args.password_file is not None:
        return read_secret(args.password_file)
    if args.ask_password:
        return _ask_password()
    environment_password = os.environb.get(PASSWORD_VARIABLE.encode())
    return environment_password if args.digest_type is not None else None


def read_secret(path: Path) -> bytes:
    """Return the bytes of a file or pipe without one trailing LF, CRLF or CR; raises
    `InvalidArgument` if it is too long, `OSError` if it cannot be read."""
    with path.open("rb") as file:  # may be a pipe, such as the shell's <(...)
        data = file.read(_MAX_SECRET_BYTES + 1)
    if len(data) > _MAX_SECRET_BYTES:
        raise InvalidArgument(f"{path}: is longer than a secret can be ({_MAX_SECRET_BYTES} bytes)")
    return data.removesuffix(b"\n").removesuffix(b"\r")


def _ask_password() -> bytes:
    """Prompt for the password at the terminal; raises `InvalidArgument` at end of input."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", getpass.GetPassWarning)  # stdin may be a pipe
        try:
            return os.fsencode(getpass.getpass("Password of the ledger: "))
        except EOFError:
            raise InvalidArgument("--ask-password: no password was given") from None


def add_sasl_user(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options for the SASL user that a client authenticates as."""
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


def sasl_user_from_args(args: argparse.Namespace) -> SaslUser | None:
    """Return the SASL user to authenticate as, None without --jaas, which --jaas-section needs."""
    if args.jaas is None:
        if args.jaas_section is not None:
            raise InvalidArgument("--jaas-section needs --jaas")
        return None
    from bkstore.wire.sasl import SaslUser

    return SaslUser.from_jaas(args.jaas, args.jaas_section or _CLIENT_SECTION)


def add_sasl_users(parser: argparse.ArgumentParser) -> None:
    """Add the options for the SASL users that a bookie accepts."""
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
        help="pattern of the users that may connect, as saslJaasClientAllowedIds (.*bookkeeper.*)",
    )


def sasl_users_from_args(args: argparse.Namespace, settings: ServerSettings) -> SaslUsers | None:
    """Return the SASL users that a bookie accepts, None if it does not authenticate clients;
    options precede its conf's `settings`, and `InvalidArgument` is raised if these need --jaas."""
    if args.jaas is None:
        if settings.sasl:
            raise InvalidArgument(
                f"{args.directory}: bookieAuthProviderFactoryClass asks for SASL: give the "
                "file of the JVM's java.security.auth.login.config: --jaas FILE"
            )
        if args.jaas_section is not None or args.sasl_allowed_ids is not None:
            raise InvalidArgument("--jaas-section and --sasl-allowed-ids need --jaas")
        return None
    from bkstore.wire.sasl import SaslUsers
    from bkstore.wire.sasl.credentials import DEFAULT_ALLOWED_IDS

    allowed_ids = args.sasl_allowed_ids
    if allowed_ids is None:
        allowed_ids = settings.sasl_allowed_ids
    return SaslUsers.from_jaas(
        args.jaas,
        args.jaas_section or settings.jaas_section or _BOOKIE_SECTION,
        DEFAULT_ALLOWED_IDS if allowed_ids is None else allowed_ids,
    )


def add_show_keys(parser: argparse.ArgumentParser) -> None:
    """Add --show-keys."""
    parser.add_argument(
        "--show-keys",
        action="store_true",
        help="include the master keys, which allow writing and fencing ledgers; "
        "otherwise master_key is null",
    )


def hide_keys(table: Table) -> Table:
    """Return the table with the master keys replaced by nulls."""
    from bkstore.tables.table import ConstantColumn

    nulls = ConstantColumn(None, len(table))
    return type(table)(table.schema, {**table.columns, "master_key": nulls})
