"""Link: the connection to one bookie in one dialect, made when needed and remade when lost.

With a user, a new connection authenticates before any other request is sent. Source:
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
from bkstore.wire.client.connection import PipelinedConnection
from bkstore.wire.client.dialect import Dialect
from bkstore.wire.client.interrupt_repair import release_owned, repair_on_interrupt
from bkstore.wire.client.socket_stream import SocketStream, connect, format_address
from bkstore.wire.sasl import SaslUser
from bkstore.wire.sasl.digest_md5 import DigestClient
from bkstore.wire.sasl.plugins import AUTH_DISABLED, SASL
from bkstore.wire.v3 import OperationType

_D = TypeVar("_D", bound=Dialect)

_START_TLS_REFUSALS = [(OperationType.START_TLS, 0)]
"""If the client has not authenticated when the TLS handshake ends, a BookKeeper bookie with SASL
answers within TLS that START_TLS failed, and goes on
(`BookieRequestProcessor.processStartTLSRequestV3`)."""


@dataclass(frozen=True)
class ConnectionSettings:
    """The address and the options of connections; see `WireClient`."""

    address: tuple[str, int]
    timeout: float
    window: int
    tls: ssl.SSLContext | None
    user: SaslUser | None

    @property
    def bookie_name(self) -> str:
        """The address as text."""
        return format_address(self.address)


class ReconnectingLink(Generic[_D]):
    """A dialect, and the connection that uses it. Threads: safe; one connects, and the others wait
    until it has. A forked child starts without a connection."""

    def __init__(
        self, dialect: _D, settings: ConnectionSettings, describe_client: Callable[[], str]
    ) -> None:
        self.dialect = dialect
        self._settings = settings
        self._describe_client = describe_client
        self._connection: PipelinedConnection | None = None
        self._closed = False
        self._lock = RLock()

    @repair_on_interrupt
    def get_connection(self) -> PipelinedConnection:
        """Return a connection that takes requests: the present one, or else a new one. A connection
        that the bookie ended while it was idle is replaced before anything is sent. Raises what
        `socket_stream.connect` raises, and `IllegalOperation` once the link is closed."""
        with self._lock:
            if self._closed:
                raise forks.closed_error(self._describe_client())
            if not self._keep_usable():
                self._connection = self._connect()
            assert self._connection is not None
            return self._connection

    @repair_on_interrupt
    def is_connected(self) -> bool:
        """Return whether there is a connection. Closes one that the bookie has ended."""
        with self._lock:
            return self._keep_usable()

    def _connect(self) -> PipelinedConnection:
        """Return a new connection, authenticated if the settings have a user."""
        settings = self._settings
        stream: SocketStream | None = None
        try:
            stream = connect(settings.address, settings.timeout, settings.tls)
            # a bookie with SASL may first refuse START_TLS, within TLS: that answer is dropped
            unsolicited_keys = _START_TLS_REFUSALS if settings.user is not None else ()
            connection = PipelinedConnection(
                stream,
                self.dialect,
                settings.bookie_name,
                timeout=settings.timeout,
                window=settings.window,
                unsolicited_keys=unsolicited_keys,
            )
            if settings.user is not None:
                _authenticate(connection, self.dialect, settings.user, settings.bookie_name)
            return connection
        except BaseException:
            if stream is not None:
                stream.close()
            raise

    def _keep_usable(self) -> bool:
        """Close a connection that is not usable; return whether there is a usable one."""
        if self._connection is None:
            return False
        if self._connection.is_usable():
            return True
        self._connection.close()
        self._connection = None
        return False

    @repair_on_interrupt
    def close(self) -> None:
        """End the connection; what is under way ends with `BookieUnavailable`. Idempotent."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _repair(self) -> None:
        release_owned(self._lock)

    def after_fork(self) -> None:
        """Drop the connection in a forked child: it belongs to the parent."""
        self._lock = RLock()
        parent_connection, self._connection = self._connection, None
        if parent_connection is not None:
            parent_connection.abandon()


def _authenticate(
    connection: PipelinedConnection, dialect: Dialect, user: SaslUser, bookie_name: str
) -> None:
    """Authenticate as a user, by SASL's DIGEST-MD5; return at once if the bookie does not use
    authentication.

    The last message is empty, and its answer is not waited for, as in BookKeeper's client. Errors
    begin with `bookie_name`.
    Raises `UnauthorizedAccess` if the bookie refuses or does not prove that it knows the password;
    `BookieUnavailable` without an answer, as for a wrong password; `CorruptionError` for an invalid
    answer.
    """
    mechanism = DigestClient(user)
    token = b""
    while not mechanism.is_complete:
        try:
            response = connection.call(dialect.auth(token))
        except BookieUnavailable as error:
            hint = "a bookie does not answer a wrong name or password"
            text = f"{error} (authenticating as {user.username!r}: {hint})"
            raise BookieUnavailable(text) from None
        if response.plugin == AUTH_DISABLED:
            return
        if response.plugin != SASL:
            reason = "the answer to AUTH is from a plugin other than sasl"
            raise CorruptionError(bookie_name, None, reason)
        try:
            token = mechanism.respond(response.payload)
        except CorruptionError as error:
            raise error.relocate(f"{bookie_name}: authentication") from None
        except UnauthorizedAccess as error:
            raise UnauthorizedAccess(f"{bookie_name}: {error}") from None
    connection.send_no_wait(dialect.auth(token))
