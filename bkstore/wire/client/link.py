"""Link: the connection to one bookie in one dialect, made when it is wanted and made again.

A connection proves who its client is before anything is asked over it. Source:
`proto/AuthHandler.ClientSideHandler`, `sasl/SASLClientAuthProvider`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Generic, TypeVar

from bkstore import forks
from bkstore.errors import BookieUnavailable, CorruptionError, UnauthorizedAccess
from bkstore.wire.client.connection import Connection
from bkstore.wire.client.interrupts import release_owned, repaired
from bkstore.wire.client.requests import Dialect
from bkstore.wire.client.stream import Stream, address_text, connect
from bkstore.wire.sasl import SaslUser
from bkstore.wire.sasl.digest_md5 import DigestClient
from bkstore.wire.sasl.plugins import AUTH_DISABLED, SASL
from bkstore.wire.v3 import Operation

_D = TypeVar("_D", bound=Dialect)

_TLS_REFUSED = [(Operation.START_TLS, 0)]
"""A real bookie that asks for SASL says in TLS that START_TLS failed, and goes on, where nobody
has authenticated when the TLS handshake ends: `BookieRequestProcessor.processStartTLSRequestV3`."""


@dataclass(frozen=True)
class Settings:
    """Where a client connects to, and how; see `WireClient`."""

    address: tuple[str, int]
    timeout: float
    window: int
    tls: ssl.SSLContext | None
    user: SaslUser | None

    @property
    def name(self) -> str:
        """The address as text."""
        return address_text(self.address)


class Link(Generic[_D]):
    """A dialect, and the connection that speaks it.

    Threads: safe; one connects, the others wait for that. A forked child begins without a
    connection.
    """

    def __init__(self, dialect: _D, settings: Settings, what: Callable[[], str]) -> None:
        self.dialect = dialect
        self._settings = settings
        self._what = what
        self._connection: Connection | None = None
        self._closed = False
        self._lock = RLock()

    @repaired
    def connection(self) -> Connection:
        """Return a connection that takes requests: the one there is, else a new one.

        One that the bookie ended while nothing was under way is replaced before anything is
        sent. Raises as `stream.connect`; `IllegalOperation` once it is closed.
        """
        with self._lock:
            if self._closed:
                raise forks.closed(self._what())
            if not self._alive():
                self._connection = self._connect()
            assert self._connection is not None
            return self._connection

    @repaired
    def connected(self) -> bool:
        """Return whether a connection is there; one that the bookie ended is let go."""
        with self._lock:
            return self._alive()

    def _connect(self) -> Connection:
        made = self._settings
        stream: Stream | None = None
        try:
            stream = connect(made.address, made.timeout, made.tls)
            connection = Connection(
                stream,
                self.dialect,
                made.name,
                timeout=made.timeout,
                window=made.window,
                unasked=_TLS_REFUSED if made.user is not None else (),
            )
            if made.user is not None:
                _log_in(connection, self.dialect, made.user, made.name)
            return connection
        except BaseException:
            if stream is not None:
                stream.close()
            raise

    def _alive(self) -> bool:
        current = self._connection
        if current is None or current.usable():
            return current is not None
        current.close()
        self._connection = None
        return False

    @repaired
    def close(self) -> None:
        """End the connection; what is under way ends with `BookieUnavailable`. Idempotent."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _repair(self) -> None:
        release_owned(self._lock)

    def forked(self) -> None:
        """Begin anew in a forked child: the connection is the parent's."""
        self._lock = RLock()
        current, self._connection = self._connection, None
        if current is not None:
            current.abandon()


def _log_in(connection: Connection, dialect: Dialect, user: SaslUser, name: str) -> None:
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
