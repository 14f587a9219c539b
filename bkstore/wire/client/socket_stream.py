"""Stream: a non-blocking socket connection to a bookie, with TLS if configured.

A bookie takes TLS on its usual port: the client asks for it by a v3 message in the clear
(START_TLS), before the handshake. Source: `proto/PerChannelBookieClient.initiateTLS`.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from threading import RLock

from bkstore.errors import BookieUnavailable, CorruptionError, SystemRefused
from bkstore.files.os_errors import is_transient
from bkstore.wire import v3
from bkstore.wire.client.interrupt_repair import release_owned
from bkstore.wire.frames import LENGTH_BYTES, frame

MAX_WAIT_SECONDS = 86400.0
"""The longest single wait in seconds: system calls refuse numbers as large as callers may give."""

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_WRITABLE = select.POLLOUT

_RECEIVE_BYTES = 256 << 10
_MAX_START_TLS_ANSWER = 1024  # bytes; the server has not proved its identity yet


class SocketStream:
    """A connected socket that never blocks; `wait` waits until it is ready. Threads: one may send
    while another receives; `interrupt` may be called at any time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        # None without TLS. OpenSSL keeps one state for both directions: only one call at a time.
        self._tls_lock = RLock() if isinstance(sock, ssl.SSLSocket) else None
        # what `wait` polls for; TLS may have to send before it can receive, and the reverse
        self._receive_events, self._send_events = _READABLE, _WRITABLE

    def receive(self) -> bytes | None:
        """Return received bytes, None if there are none yet, b"" at the end. Raises `OSError`."""
        if self._tls_lock is None:
            try:
                return self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return None
        with self._tls_lock:
            self._receive_events = _READABLE
            try:
                return self._socket.recv(_RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                return None
            except ssl.SSLWantWriteError:  # TLS must send before it can receive more
                self._receive_events = _WRITABLE
                return None

    def send(self, data: memoryview) -> int:
        """Send what the socket takes now; return how many bytes that is. Raises `OSError`."""
        if self._tls_lock is None:
            try:
                return self._socket.send(data)
            except BlockingIOError:
                return 0
        with self._tls_lock:
            self._send_events = _WRITABLE
            try:
                return self._socket.send(data)
            except ssl.SSLWantWriteError:
                return 0
            except ssl.SSLWantReadError:  # TLS must receive before it can send more
                self._send_events = _READABLE
                return 0

    def wait(self, seconds: float, *, receive: bool = False, send: bool = False) -> bool:
        """Wait until the socket can be received from, or sent to, for a day at most; return whether
        it can. A closed socket counts as ready."""
        if receive and self._tls_lock is not None and self._has_decrypted():
            return True
        events = (self._receive_events if receive else 0) | (self._send_events if send else 0)
        poll = select.poll()  # for one descriptor, a new object is cheaper than a shared one
        try:
            poll.register(self._socket, events)
        except ValueError:  # closed by another thread: the next call reports it
            return True
        return bool(poll.poll(min(max(0.0, seconds), MAX_WAIT_SECONDS) * 1000))

    def _has_decrypted(self) -> bool:
        """Return whether decrypted bytes wait in OpenSSL, where poll does not see them."""
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            return self._socket.pending() > 0
        except (OSError, ValueError):  # closed: the next call reports it
            return True

    def interrupt(self) -> None:
        """Shut the connection down both ways, which wakes the threads that wait for it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended already
            return

    def release_owned(self) -> None:
        """Release the lock if an interrupted call of this thread still holds it."""
        if self._tls_lock is not None:
            release_owned(self._tls_lock)

    def close(self) -> None:
        """Close the descriptor; sends nothing, because another process may share the connection."""
        self._socket.close()


def connect(
    address: tuple[str, int], timeout: float, tls: ssl.SSLContext | None = None
) -> SocketStream:
    """Return a new connection; with `tls` it is encrypted and the certificate is verified. All
    steps together take at most `timeout` seconds.

    Raises `BookieUnavailable` with the system's reason, `SystemRefused` if this machine has no
    descriptor or memory for it, `CorruptionError` for an invalid answer to START_TLS, and the
    error of the answer's status if the bookie refuses TLS.
    """
    bookie_name = format_address(address)  # begins all errors
    timeout = min(timeout, MAX_WAIT_SECONDS)
    deadline = time.monotonic() + timeout
    sock: socket.socket | None = None
    try:
        try:
            sock = socket.create_connection(address, timeout)
        except OSError as error:
            if is_transient(error):
                raise SystemRefused(f"a connection to {bookie_name}", error) from error
            reason = f"no connection: {error.strerror or error}"
            raise BookieUnavailable(f"{bookie_name}: {reason}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            _start_tls(sock, bookie_name, deadline)
            sock.settimeout(max(0.001, deadline - time.monotonic()))  # 0 would mean not to wait
            sock = tls.wrap_socket(sock, server_hostname=address[0])
        return SocketStream(sock)
    except OSError as error:  # of START_TLS or the handshake; ssl.SSLError is one
        _close_if_open(sock)
        raise BookieUnavailable(f"{bookie_name}: no TLS connection: {error}") from error
    except BaseException:
        _close_if_open(sock)
        raise


def _close_if_open(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


def format_address(address: tuple[str, int]) -> str:
    """Return an address as text: ``host:port``, and brackets around a host with colons."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _start_tls(sock: socket.socket, bookie_name: str, deadline: float) -> None:
    """Send START_TLS in the clear, with transaction id 0, and check the answer, after which the
    handshake begins. Errors begin with `bookie_name`."""
    request = v3.new_request(v3.OperationType.START_TLS, 0, {})
    sock.sendall(frame(v3.encode(request)))
    (size,) = struct.unpack(">i", _receive_exactly(sock, LENGTH_BYTES, deadline))
    if not 0 <= size <= _MAX_START_TLS_ANSWER:
        raise CorruptionError(bookie_name, 0, f"answer to START_TLS of {size} bytes")
    try:
        response = v3.decode_response(_receive_exactly(sock, size, deadline))
        v3.status_in(response).raise_if_error(f"{bookie_name}: START_TLS")
    except CorruptionError as error:
        raise error.relocate(bookie_name, LENGTH_BYTES) from None
    if (response.header.operation, response.header.txnId) != (v3.OperationType.START_TLS, 0):
        reason = "the answer to START_TLS is of another type"
        raise CorruptionError(bookie_name, LENGTH_BYTES, reason)


def _receive_exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Return exactly `size` received bytes: those after them belong to the TLS handshake."""
    received = b""
    while len(received) < size:
        sock.settimeout(max(0.001, deadline - time.monotonic()))  # 0 would mean not to wait
        chunk = sock.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        received += chunk
    return received
