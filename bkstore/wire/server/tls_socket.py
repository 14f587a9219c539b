"""TlsSocket: reports the state of the socket below a connection's TLS.

asyncio's TLS passes encrypted bytes on to the socket's transport and forgets them: its own buffer
is empty, and it does not pause its writer however much the socket's buffer holds. And once a
client has ended its side of the TCP connection, it drops every later answer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

_CHUNK_BYTES = 256 << 10
"""The most bytes given to TLS at once, because its buffer never shrinks."""


def write_to_tls(transport: asyncio.Transport, data: bytes) -> None:
    """Write data to a transport of TLS, a chunk at a time."""
    with memoryview(data) as view:
        for start in range(0, len(view), _CHUNK_BYTES):
            transport.write(bytes(view[start : start + _CHUNK_BYTES]))


class AppProtocol(Protocol):
    """The protocol above the TLS."""

    def pause_socket(self) -> None:
        """Stop writing: the socket's buffer is full."""

    def resume_socket(self) -> None:
        """Write again."""

    def socket_eof_received(self) -> None:
        """Handle that the client has ended its side of the socket without ending its TLS."""


class TlsSocket(asyncio.BufferedProtocol):
    """Stands between a socket's transport and its TLS: passes on every event except the end of the
    stream, and reports to `app_protocol` those that the TLS does not pass on."""

    def __init__(self, transport: asyncio.Transport, app_protocol: AppProtocol) -> None:
        """Put this protocol between a transport and asyncio's TLS."""
        self._transport = transport
        self._tls = cast(asyncio.BufferedProtocol, transport.get_protocol())
        self._above = app_protocol
        transport.set_protocol(self)

    @property
    def unsent_bytes(self) -> int:
        """Encrypted bytes that the client has not taken."""
        return self._transport.get_write_buffer_size()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Inherited."""
        return cast(bytearray, self._tls.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        """Inherited."""
        self._tls.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        """Keep the socket open, because answers may still have to be sent."""
        self._above.socket_eof_received()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Inherited."""
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause the TLS and the protocol above it: the socket's buffer is full."""
        self._tls.pause_writing()
        self._above.pause_socket()

    def resume_writing(self) -> None:
        """Resume the TLS and the protocol above it: the socket's buffer has room."""
        self._tls.resume_writing()
        self._above.resume_socket()
