"""Stream: the bytes of one connection, without blocking; by TLS if it is asked for.

A bookie takes TLS on its usual port: the client says so in plain text by a v3 message (START_TLS),
and the handshake comes behind the answer. Source: `proto/PerChannelBookieClient.initiateTLS`.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from threading import RLock

from bkstore.arguments import host_name
from bkstore.errors import BookieUnavailable, CorruptionError, InvalidArgument, SystemRefused
from bkstore.files.os_errors import is_for_now
from bkstore.wire import v3
from bkstore.wire.client.interrupts import release_owned
from bkstore.wire.frames import PREFIX, frame

LONGEST = 86400.0
"""Seconds that one wait takes at most: the system's calls take no such numbers as callers give."""

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
WRITABLE = select.POLLOUT

_AT_ONCE = 256 << 10
_LONGEST_ANSWER = 1024  # to START_TLS: nobody has shown yet who it is


def parse_address(address: str | tuple[str, int]) -> tuple[str, int]:
    """Return (host, port) of ``"host:port"``, ``"[v6]:port"`` or such a pair.

    >>> parse_address("[::1]:3181"), parse_address(("localhost", 3181))
    (('::1', 3181), ('localhost', 3181))
    """
    if isinstance(address, str):
        host, _, number = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = int(number) if number.isascii() and number.isdigit() else -1
    else:
        try:
            host, port = address
        except (TypeError, ValueError):
            host, port = "", -1
    try:
        if host and type(port) is int and 0 < port < 2**16:
            return host_name("host", host), port
    except InvalidArgument:
        pass
    raise InvalidArgument(f"{address!r} is no address: a host and a port of 1..65535")


class Stream:
    """A connected socket that never blocks; `wait` waits for it.

    Threads: one may send while another receives. `interrupt` may be called at any time.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        # One call at a time into OpenSSL, which keeps one state for both directions.
        self._tls = RLock() if isinstance(connected, ssl.SSLSocket) else None
        self._receiving = _READABLE
        self._sending = WRITABLE

    def receive(self) -> bytes | None:
        """Return bytes that are there, None if there are none yet, b"" at the end.

        `OSError` where the connection broke.
        """
        if self._tls is None:
            try:
                return self._socket.recv(_AT_ONCE)
            except BlockingIOError:
                return None
        with self._tls:
            self._receiving = _READABLE
            try:
                return self._socket.recv(_AT_ONCE)
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLWantWriteError:
                self._receiving = WRITABLE
                return None

    def send(self, data: memoryview) -> int:
        """Send what can be sent now and return how many bytes that were; raises `OSError`."""
        if self._tls is None:
            try:
                return self._socket.send(data)
            except BlockingIOError:
                return 0
        with self._tls:
            self._sending = WRITABLE
            try:
                return self._socket.send(data)
            except ssl.SSLWantWriteError:
                return 0
            except ssl.SSLWantReadError:
                self._sending = _READABLE
                return 0

    def wait(self, receive: bool, send: bool, seconds: float) -> bool:
        """Wait until something may be received, or sent, a day at most; return whether it may."""
        if receive and self._tls is not None and self._pending():
            return True
        wanted = (self._receiving if receive else 0) | (self._sending if send else 0)
        poll = select.poll()  # as large as one descriptor: cheaper than to share one
        try:
            poll.register(self._socket, wanted)
        except ValueError:  # closed by another thread: what comes next says so
            return True
        return bool(poll.poll(min(max(0.0, seconds), LONGEST) * 1000))

    def _pending(self) -> bool:
        """Return whether decrypted bytes wait, of which the system knows nothing."""
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            return self._socket.pending() > 0
        except (OSError, ValueError):
            return True

    def interrupt(self) -> None:
        """End the connection both ways, so that whoever waits for it wakes up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended already
            return

    def release_owned(self) -> None:
        """Release what an interrupted call of this thread left locked."""
        if self._tls is not None:
            release_owned(self._tls)

    def close(self) -> None:
        """Let go of the descriptor; sends nothing that another process would not expect."""
        self._socket.close()


def connect(address: tuple[str, int], timeout: float, tls: ssl.SSLContext | None = None) -> Stream:
    """Return a connection; with `tls` encrypted, the server's certificate checked as that says.

    Raises `BookieUnavailable` with the system's reason, `SystemRefused` where this machine has no
    descriptor or memory for one, `CorruptionError` for an answer to START_TLS that is none, and
    what its status stands for.
    """
    name = address_text(address)
    timeout = min(timeout, LONGEST)
    end = time.monotonic() + timeout
    connected: socket.socket | None = None
    try:
        try:
            connected = socket.create_connection(address, timeout)
        except OSError as error:
            if is_for_now(error):
                raise SystemRefused(f"a connection to {name}", error) from error
            raise BookieUnavailable(f"{name}: no connection: {error.strerror or error}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            _ask_for_tls(connected, name, end)
            connected.settimeout(max(0.001, end - time.monotonic()))
            connected = tls.wrap_socket(connected, server_hostname=address[0])
        return Stream(connected)
    except OSError as error:  # ssl.SSLError is one
        _close(connected)
        raise BookieUnavailable(f"{name}: no TLS connection: {error}") from error
    except BaseException:
        _close(connected)
        raise


def _close(connected: socket.socket | None) -> None:
    if connected is not None:
        connected.close()


def address_text(address: tuple[str, int]) -> str:
    """Return an address as text: ``host:port``, and brackets around a host with colons."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ask_for_tls(connected: socket.socket, name: str, end: float) -> None:
    request = v3.new_request(v3.Operation.START_TLS, 0, {})
    connected.sendall(frame(v3.encode(request)))
    (size,) = struct.unpack(">i", _exactly(connected, PREFIX, end))
    if not 0 <= size <= _LONGEST_ANSWER:
        raise CorruptionError(name, 0, f"answer to START_TLS of {size} bytes")
    try:
        response = v3.decode_response(_exactly(connected, size, end))
        v3.status_in(response).check(f"{name}: START_TLS")
    except CorruptionError as error:
        raise error.within(name, PREFIX) from None
    if (response.header.operation, response.header.txnId) != (v3.Operation.START_TLS, 0):
        raise CorruptionError(name, PREFIX, "the answer to START_TLS is one to something else")


def _exactly(connected: socket.socket, size: int, end: float) -> bytes:
    """Return so many bytes and not one more: what follows is for the handshake."""
    found = b""
    while len(found) < size:
        connected.settimeout(max(0.001, end - time.monotonic()))
        part = connected.recv(size - len(found))
        if not part:
            raise ConnectionResetError("the server ended the connection")
        found += part
    return found
