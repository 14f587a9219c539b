"""Authentication: the SASL exchange of a client, and the limits on it until it has authenticated.

AUTH of the plugin ``sasl`` goes to the mechanism (DIGEST-MD5), START_TLS is served, and all other
requests are refused, as in BookKeeper: with EUA if the response has a status, else by ending the
connection. A wrong proof of the password gets no answer. Source:
`proto/AuthHandler.ServerSideHandler`, `sasl/SASLBookieAuthProvider`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from bkstore.errors import CorruptionError, UnauthorizedAccess
from bkstore.wire import v2, v3
from bkstore.wire.sasl.credentials import SaslUsers
from bkstore.wire.sasl.digest_md5 import DigestServer
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.server.requests import auth_responses, v2_requests, v3_requests
from bkstore.wire.server.requests.operations import Operation
from bkstore.wire.status_codes import Status

_log = logging.getLogger(__name__)


class Authentication:
    """The authentication of one connection, `is_complete` once the client has proved who it is."""

    def __init__(self, users: SaslUsers) -> None:
        self._mechanism = DigestServer(users)

    @property
    def has_sent_challenge(self) -> bool:
        """Whether the client has been given a challenge."""
        return self._mechanism.has_sent_challenge

    @property
    def is_complete(self) -> bool:
        """Whether the client has authenticated, so that its requests are served."""
        return self._mechanism.is_complete

    def make_operation(self, protocol: int, request: Any, *, tls: bool) -> Operation | None:
        """Return the operation of a request sent before authentication, or None for no answer.
        `tls`: START_TLS is served. Raises `CorruptionError` if the request ends the connection."""
        return self._from_v2(request) if protocol == 2 else self._from_v3(request, tls)

    def _from_v2(self, request: v2.Request) -> Operation | None:
        """Return the operation of a request sent before authentication: the next step of an AUTH,
        or None, for no answer, if the client's proof is wrong. As in BookKeeper, adds and reads are
        refused with a status; any other request raises `CorruptionError`, which ends the
        connection."""
        if isinstance(request, v2.BatchReadRequest):
            raise CorruptionError(None, None, "a batch read before authentication")
        if not isinstance(request, v2.AuthRequest):
            return v2_requests.make_operation(request).as_refusal(Status.EUA)
        if request.plugin != SASL:
            raise CorruptionError(None, None, "authentication by a plugin other than sasl")
        token = self._next_token(request.payload)
        return None if token is None else auth_responses.answer_v2(SASL, token, request.version)

    def _from_v3(self, request: Any, tls: bool) -> Operation | None:
        """Return the operation of a request sent before authentication: the next step of an AUTH,
        or None, for no answer, if the client's proof is wrong. START_TLS is permitted, and succeeds
        with `tls`; all other requests are refused."""
        operation = v3.OperationType(request.header.operation)
        if operation is v3.OperationType.START_TLS and request.HasField("startTLSRequest"):
            return v3_requests.make_operation(request, tls=tls)
        auth_request = request.authRequest
        if operation is not v3.OperationType.AUTH or auth_request.authPluginName != SASL:
            return auth_responses.refuse_v3(request)
        token = self._next_token(auth_request.payload)
        return None if token is None else auth_responses.answer_v3(request, SASL, token)

    def _next_token(self, message: bytes) -> bytes | None:
        """Return the mechanism's next token, or None if the client's message is refused."""
        try:
            token = self._mechanism.respond(message)
        except (CorruptionError, UnauthorizedAccess) as error:
            _log.info("a client is not authenticated: %s", error)
            return None
        if self.is_complete:
            _log.debug("a client is authenticated as %r", self._mechanism.username)
        return token


class UnauthenticatedConnection(Protocol):
    """A connection whose client has not authenticated."""

    held_bytes: int

    def abort(self) -> None:
        """Close now."""


class UnauthenticatedConnections:
    """The connections that have not authenticated. Used in the loop's thread only. A connection
    that takes longer than `authentication_timeout` is closed. If they together hold more than
    `authentication_memory` bytes of requests and answers, the largest is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ServerOptions) -> None:
        self._loop = loop
        self._timeout = options.authentication_timeout
        self._max_held_bytes = options.authentication_memory
        self._connected_at: dict[UnauthenticatedConnection, float] = {}
        self._held_bytes = 0

    def add(self, connection: UnauthenticatedConnection) -> None:
        """Add a new connection."""
        self._connected_at[connection] = self._loop.time()

    def discard(self, connection: UnauthenticatedConnection) -> None:
        """Remove a connection that has authenticated or is lost."""
        if self._connected_at.pop(connection, None) is not None:
            self._held_bytes -= connection.held_bytes

    def count_bytes(self, connection: UnauthenticatedConnection, change: int) -> None:
        """Count a change to a connection's `held_bytes`; schedule the abort of the largest
        connection if all together hold too much. Authenticated connections are not counted."""
        if connection not in self._connected_at:
            return
        self._held_bytes += change
        if change > 0 and self._held_bytes > self._max_held_bytes:
            largest = max(self._connected_at, key=lambda connection: connection.held_bytes)
            held = self._held_bytes
            _log.warning("%d bytes held before authentication: disconnected a client", held)
            self._loop.call_soon(largest.abort)  # later, because its code may be running now

    def abort_expired(self, now: float) -> None:
        """Close the connections that are over the time limit."""
        for connection, connected_at in list(self._connected_at.items()):
            if now - connected_at > self._timeout:
                _log.info("a client did not authenticate in %g s: disconnected", self._timeout)
                connection.abort()
