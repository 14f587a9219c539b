"""Login: a connection proves who its client is, before anything is asked over it.

Source: `proto/AuthHandler.ClientSideHandler`, `sasl/SASLClientAuthProvider`.
"""

from __future__ import annotations

from bkstore.errors import BookieUnavailable, CorruptionError, UnauthorizedAccess
from bkstore.wire.client.connection import Connection
from bkstore.wire.client.requests import Dialect
from bkstore.wire.sasl.credentials import SaslUser
from bkstore.wire.sasl.digest_md5 import DigestClient
from bkstore.wire.sasl.plugins import AUTH_DISABLED, SASL


def log_in(connection: Connection, dialect: Dialect, user: SaslUser, name: str) -> None:
    """Authenticate as a user; return at once where the bookie says that it asks nobody to.

    The last message is empty, and its answer is not waited for. `name` is the bookie's in errors:
    `UnauthorizedAccess` where it refuses, or does not know the password itself; `BookieUnavailable`
    where it gives no answer, as real bookies do to a wrong password; `CorruptionError` for an
    answer that is none.
    """
    mechanism = DigestClient(user)
    token = b""
    while not mechanism.complete:
        try:
            answer = connection.ask(dialect.auth(token))
        except BookieUnavailable as error:
            hint = "a bookie gives no answer to a wrong name or password"
            text = f"{error} (authenticating as {user.username!r}: {hint})"
            raise BookieUnavailable(text) from None
        if answer.plugin == AUTH_DISABLED:
            return
        if answer.plugin != SASL:
            raise CorruptionError(name, None, "the answer to AUTH is of another plugin than sasl")
        try:
            token = mechanism.respond(answer.payload)
        except CorruptionError as error:
            raise error.within(f"{name}: authentication") from None
        except UnauthorizedAccess as error:
            raise UnauthorizedAccess(f"{name}: {error}") from None
    connection.tell(dialect.auth(token))
