"""A client's end of a connection, as simple as can be: for tests of the server."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path
from typing import Any, Self

from bkstore.formats.entry import Coder, Entry
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.status_codes import Status

__all__ = ["AUTHORITY", "CLIENT", "KEY", "SERVER", "Peer", "add", "record", "secured", "statuses"]

CERTIFICATES = Path(__file__).parent / "certificates"
SERVER = CERTIFICATES / "server.pem", CERTIFICATES / "server.key"
CLIENT = CERTIFICATES / "client.pem", CERTIFICATES / "client.key"
AUTHORITY = CERTIFICATES / "ca.pem"
KEY = b"k" * 20
_CODER = Coder("CRC32C", "password")


def record(ledger: int, entry: int, payload: bytes = b"payload") -> bytes:
    """Return a record."""
    return _CODER.encode(Entry(ledger, entry, entry - 1, (entry + 1) * len(payload), payload))


def add(ledger: int, entry: int, payload: bytes = b"payload", flags: int = 0) -> v2.AddRequest:
    """Return an add of v2."""
    return v2.AddRequest(KEY, record(ledger, entry, payload), flags)


class Peer:
    """A blocking socket, and the frames on it."""

    def __init__(self, address: tuple[str, int], timeout: float = 10) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def send(self, *data: bytes) -> None:
        """Send bytes; what the bookie has hung up on goes nowhere."""
        try:
            self.socket.sendall(b"".join(data))
        except ConnectionError:
            self.open = False

    def exactly(self, size: int) -> bytes:
        """Return so many bytes, fewer where the connection ends."""
        found = bytearray()
        while len(found) < size:
            try:
                piece = self.socket.recv(size - len(found))
            except ConnectionError:
                piece = b""
            if not piece:
                self.open = False
                break
            found += piece
        return bytes(found)

    def frame(self) -> bytes:
        """Return the next whole frame; nothing if there is none."""
        length = self.exactly(4)
        if len(length) < 4:
            return b""
        return length + self.exactly(struct.unpack(">i", length)[0])

    def ends(self) -> bool:
        """Return whether the bookie has hung up, with nothing more to say."""
        return not self.exactly(1) and not self.open

    def ask(self, *requests: v2.Request) -> list[Any]:
        """Send requests of v2 at once; return as many answers."""
        self.send(*(frame(*request.parts()) for request in requests))
        return [v2.decode_response(self.frame()[4:]) for _ in requests]

    def ask_v3(
        self,
        operation: v3.OperationType,
        body: dict[str, Any] | None = None,
        *,
        extended: bool = False,
    ) -> Any:
        """Send a request of v3; return its answer."""
        request = v3.new_request(operation, 7, body, extended=extended)
        self.send(frame(v3.encode(request)))
        answer = v3.decode_response(self.frame()[4:], extended=extended)

        assert answer.header.txnId == 7
        return answer


def secured(peer: Peer, *, shown: bool = False) -> Peer:
    """Go on in TLS, as a client that trusts the authority does."""
    answer = peer.ask_v3(v3.OperationType.START_TLS, {})

    assert v3.status_in(answer) is Status.EOK
    assert answer.HasField("startTLSResponse")
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    if shown:
        context.load_cert_chain(*CLIENT)
    peer.socket = context.wrap_socket(peer.socket, server_hostname="localhost")
    return peer


def statuses(answers: list[Any]) -> list[str]:
    """Return the names of the statuses."""
    return [answer.status.name for answer in answers]
