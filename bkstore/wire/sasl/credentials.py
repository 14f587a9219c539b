"""Credentials: the users of a bookie, and the user of a client. They never show a password."""

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
from bkstore.wire.sasl.jaas import BOOKIE_SECTION, CLIENT_SECTION, read_digest_options

DEFAULT_ALLOWED_IDS = ".*bookkeeper.*"
"""BookKeeper's default for `saslJaasClientAllowedIds`."""

_USER_PREFIX = "user_"


def _check_secret(name: str, value: Any) -> str:
    """Return a valid name or password. Raises `InvalidArgument`, without showing it, otherwise."""
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
        """Return the user (`username` and `password`) of a client's section of a JAAS file. Raises
        `InvalidArgument` if the section is missing, has another login module such as Kerberos, or
        has no user; and what `jaas.read_jaas` raises."""
        options = read_digest_options(file, section)
        if options.get("username") is None or options.get("password") is None:
            raise InvalidArgument(f"{file}: section {section} lacks username or password")
        return cls(options["username"], options["password"])


@dataclass(frozen=True)
class SaslUsers:
    """The users of a bookie, each with a password.

    `allowed_ids` is `saslJaasClientAllowedIds`, a Java regular expression for a user's whole name.
    Raises `InvalidArgument` for one that Python interprets differently, or that no user matches.

    >>> users = SaslUsers({"bookkeeper-writer": "secret", "guest": "1234"})
    >>> users.is_allowed("bookkeeper-writer"), users.is_allowed("guest"), users
    (True, False, SaslUsers(allowed_ids='.*bookkeeper.*'))
    """

    passwords: Mapping[str, str] = field(repr=False)
    allowed_ids: str = DEFAULT_ALLOWED_IDS

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for invalid passwords, or if no user may connect."""
        check_fields(self, {"passwords": instance(Mapping), "allowed_ids": text})
        passwords = {
            _check_secret("user name", name): _check_secret("password", password)
            for name, password in self.passwords.items()
        }
        object.__setattr__(self, "passwords", passwords)
        if not any(map(self.is_allowed, passwords)):
            raise InvalidArgument(
                f"no client could connect: none of the {len(passwords)} users matches the "
                f"allowed ids {self.allowed_ids!r} (saslJaasClientAllowedIds)"
            )

    @classmethod
    def from_jaas(
        cls, file: StrPath, section: str = BOOKIE_SECTION, allowed_ids: str = DEFAULT_ALLOWED_IDS
    ) -> Self:
        """Return the users of a bookie's section of a JAAS file, from its ``user_NAME`` options;
        raises what `SaslUser.from_jaas` raises."""
        options = read_digest_options(file, section)
        names = [name for name in options if name.startswith(_USER_PREFIX)]
        password_of_user = {name.removeprefix(_USER_PREFIX): options[name] for name in names}
        if not password_of_user:
            raise InvalidArgument(f"{file}: section {section} has no user (user_NAME)")
        try:
            return cls(password_of_user, allowed_ids)
        except InvalidArgument as error:
            raise InvalidArgument(f"{file}, section {section}: {error}") from None

    def first_allowed_user(self) -> SaslUser:
        """Return the first allowed user, for connections that a bookie with these users makes
        itself."""
        username = next(filter(self.is_allowed, self.passwords))
        return SaslUser(username, self.passwords[username])

    def is_allowed(self, username: str) -> bool:
        """Return whether `allowed_ids` allows this user name, known or not."""
        return self._allowed_pattern.fullmatch(username) is not None

    @cached_property
    def _allowed_pattern(self) -> re.Pattern[str]:
        """The pattern of the users that may connect. Raises `InvalidArgument` if it is no regular
        expression, or one that Python would not interpret as BookKeeper's Java does."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # nested sets, which Java supports
            try:
                return re.compile(self.allowed_ids, re.ASCII)
            except (re.error, FutureWarning, OverflowError, RecursionError) as error:
                raise InvalidArgument(
                    f"allowed_ids {self.allowed_ids!r} is not a regular expression that Java and "
                    f"Python interpret alike: {error}"
                ) from None
