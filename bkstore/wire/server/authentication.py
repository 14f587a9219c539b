"""Authentication: what a client may do and cost until it has proved who it is, and the proof.

As a real bookie: AUTH of the plugin ``sasl`` goes to the mechanism, START_TLS is served, and all
else is refused: with EUA where the message has room for a status, else the connection ends. A
proof that is wrong gets no answer at all. Source: `proto/AuthHandler.ServerSideHandler`,
`sasl/SASLBookieAuthProvider`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from bkstore.errors import CorruptionError, UnauthorizedAccess
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.sasl.credentials import SaslUsers
from bkstore.wire.sasl.digest_md5 import DigestServer
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.server.requests import of_v2, of_v3
from bkstore.wire.server.requests.operations import Operation, Ready
from bkstore.wire.status import Status

_log = logging.getLogger(__name__)


class Authentication:
    """The handshake of one connection. It is `complete` once the client has proved who it is."""

    def __init__(self, users: SaslUsers) -> None:
        self._mechanism = DigestServer(users)

    @property
    def begun(self) -> bool:
        """Whether the client has been given a challenge."""
        return self._mechanism.begun

    @property
    def complete(self) -> bool:
        """Whether requests are served."""
        return self._mechanism.complete

    def operation_of(self, protocol: int, request: Any, *, tls: bool) -> Operation | None:
        """Return what becomes of a request before the handshake is complete; None: nothing.

        `tls` is whether START_TLS may go on. Raises `CorruptionError` where the connection ends.
        """
        return self._of_v2(request) if protocol == 2 else self._of_v3(request, tls)

    def _of_v2(self, request: v2.Request) -> Operation | None:
        if isinstance(request, v2.BatchReadRequest):
            raise CorruptionError(None, None, "a batch read before authentication")
        if not isinstance(request, v2.AuthRequest):
            return of_v2.operation_of(request).as_refusal(Status.EUA)
        if request.plugin != SASL:
            raise CorruptionError(None, None, "authentication by another plugin than sasl")
        token = self._token(request.payload)
        if token is None:
            return None
        answer = v2.AuthResponse(SASL, token, request.version)
        return Ready("AUTH", 2, lambda _status: frame(*answer.parts()))

    def _of_v3(self, request: Any, tls: bool) -> Operation | None:
        operation = v3.Operation(request.header.operation)
        if operation is v3.Operation.START_TLS and request.HasField("startTLSRequest"):
            return of_v3.operation_of(request, tls=tls)
        asked = request.authRequest
        if operation is not v3.Operation.AUTH or asked.authPluginName != SASL:
            echo = v3.new_echo(request, Status.EUA)
            return Ready(operation.name, 3, lambda _: frame(v3.encode(echo)), status=Status.EUA)
        token = self._token(asked.payload)
        if token is None:
            return None
        body = {"authPluginName": SASL, "payload": token}
        return Ready("AUTH", 3, lambda status: frame(v3.encode(v3.new_echo(request, status, body))))

    def _token(self, message: bytes) -> bytes | None:
        """Return the mechanism's answer; None for a proof that is none."""
        try:
            token = self._mechanism.respond(message)
        except (CorruptionError, UnauthorizedAccess) as error:
            _log.info("a client is not authenticated: %s", error)
            return None
        if self.complete:
            _log.debug("a client is authenticated as %r", self._mechanism.username)
        return token


class Stranger(Protocol):
    """A connection whose client has not authenticated."""

    held: int

    def abort(self) -> None:
        """Close now."""


class Strangers:
    """The connections that have not authenticated. It belongs to the loop's thread.

    One that takes longer than `authentication_timeout` is closed, and where they hold more than
    `authentication_memory` of requests and answers together, the one that holds most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ServerOptions) -> None:
        self._loop = loop
        self._timeout = options.authentication_timeout
        self._memory = options.authentication_memory
        self._since: dict[Stranger, float] = {}
        self._held = 0

    def add(self, stranger: Stranger) -> None:
        """Take note of a new connection."""
        self._since[stranger] = self._loop.time()

    def forget(self, stranger: Stranger) -> None:
        """Count a connection no more: it has authenticated, or is lost."""
        if self._since.pop(stranger, None) is not None:
            self._held -= stranger.held

    def count(self, stranger: Stranger, more: int) -> None:
        """Count bytes that a connection holds beside those of its `held`, or no longer holds."""
        if stranger not in self._since:
            return
        self._held += more
        if more > 0 and self._held > self._memory:
            largest = max(self._since, key=lambda each: each.held + more * (each is stranger))
            _log.warning("%d bytes held before authentication: closed a client", self._held)
            self._loop.call_soon(largest.abort)  # not now: one of them may be at work

    def sweep(self, now: float) -> None:
        """Close the connections that have had their time."""
        for stranger, since in list(self._since.items()):
            if now - since > self._timeout:
                _log.info("a client did not authenticate in %g s: closed", self._timeout)
                stranger.abort()
