"""Credentials: whom a bookie lets in, and as whom a client comes. They never show a password."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from bkstore.arguments import check_fields, instance, text
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.wire.sasl.jaas import BOOKIE_SECTION, CLIENT_SECTION, digest_options

ALLOWED_IDS = ".*bookkeeper.*"
"""What BookKeeper has for `saslJaasClientAllowedIds` where nothing is set."""

_USER = "user_"


def _check_secret(name: str, value: Any) -> str:
    """Check a name or a password without showing it."""
    text(name, value)
    try:
        value.encode("utf-8")
    except UnicodeError:
        raise InvalidArgument(f"{name} must be text that UTF-8 can encode") from None
    return str(value)


@dataclass(frozen=True)
class SaslUser:
    """The user that a client authenticates as.

    >>> SaslUser("bookkeeper-reader", "secret")
    SaslUser(username='bookkeeper-reader')
    """

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        check_fields(self, {"username": _check_secret, "password": _check_secret})

    @classmethod
    def from_jaas(cls, file: StrPath, section: str = CLIENT_SECTION) -> Self:
        """Return the user of a client's section of a JAAS file: `username` and `password`.

        `InvalidArgument` for a section that is not there, that asks for Kerberos or for another
        login module, or has no user; raises as `jaas.read_jaas`.
        """
        options = digest_options(file, section)
        if options.get("username") is None or options.get("password") is None:
            raise InvalidArgument(f"{file}: section {section} lacks username or password")
        return cls(options["username"], options["password"])


@dataclass(frozen=True)
class SaslUsers:
    """The users that a bookie lets in, each with its password.

    `allowed_ids` is `saslJaasClientAllowedIds`, a regular expression that the whole name of a user
    has to match. It is Java's; one that Python reads in another way is refused. `InvalidArgument`
    where nobody could come in.

    >>> users = SaslUsers({"bookkeeper-writer": "secret", "guest": "1234"})
    >>> users.allows("bookkeeper-writer"), users.allows("guest"), users
    (True, False, SaslUsers(allowed_ids='.*bookkeeper.*'))
    """

    passwords: Mapping[str, str] = field(repr=False)
    allowed_ids: str = ALLOWED_IDS

    def __post_init__(self) -> None:
        check_fields(self, {"passwords": instance(Mapping), "allowed_ids": text})
        copied = {
            _check_secret("user name", name): _check_secret("password", secret)
            for name, secret in self.passwords.items()
        }
        object.__setattr__(self, "passwords", copied)
        if not any(map(self.allows, copied)):
            raise InvalidArgument(
                f"nobody could connect: the name of none of {len(copied)} users matches the "
                f"allowed ids {self.allowed_ids!r} (saslJaasClientAllowedIds)"
            )

    @classmethod
    def from_jaas(
        cls, file: StrPath, section: str = BOOKIE_SECTION, allowed_ids: str = ALLOWED_IDS
    ) -> Self:
        """Return the users of a bookie's section of a JAAS file: an option ``user_NAME`` each.

        Raises as `SaslUser.from_jaas`.
        """
        options = digest_options(file, section)
        users = {
            name.removeprefix(_USER): password
            for name, password in options.items()
            if name.startswith(_USER)
        }
        if not users:
            raise InvalidArgument(f"{file}: section {section} has no user (user_NAME)")
        try:
            return cls(users, allowed_ids)
        except InvalidArgument as error:
            raise InvalidArgument(f"{file}, section {section}: {error}") from None

    def first(self) -> SaslUser:
        """Return a user that is let in: as whom who has this may come, too."""
        name = next(filter(self.allows, self.passwords))
        return SaslUser(name, self.passwords[name])

    def allows(self, username: str) -> bool:
        """Return whether a user of this name may connect, whoever it is."""
        return self._allowed.fullmatch(username) is not None

    @cached_property
    def _allowed(self) -> re.Pattern[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # sets of sets, which Java has
            try:
                return re.compile(self.allowed_ids, re.ASCII)
            except (re.error, FutureWarning, OverflowError, RecursionError) as error:
                raise InvalidArgument(
                    f"allowed_ids {self.allowed_ids!r} is no regular expression that Java and "
                    f"Python read alike: {error}"
                ) from None
