"""Asking an admin over real sockets: whole requests, and bytes that are none."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from bkstore import Bookie, LedgerId
from bkstore.formats.entry import Coder, Entry, master_key
from bkstore.wire.admin import AdminServer

TOKEN = "a-token-of-enough-letters"
KEY = master_key("pw")


class Reply(NamedTuple):
    """What came back: status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON, its members in order."""
        return json.loads(self.body)

    @property
    def line(self) -> str:
        """The one line of a plain text."""
        text = self.body.decode("utf-8")
        assert self.headers["content-type"].startswith("text/plain")
        assert text.endswith("\n")
        assert 1 == len(text.splitlines()), text
        assert "Traceback" not in text
        return text[:-1]


def ask(
    admin: AdminServer,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    **parameters: object,
) -> Reply:
    """Send one request and return the reply."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    connection = HTTPConnection(urlsplit(admin.url).netloc, timeout=30)
    try:
        connection.request(method, path + query, body, headers or {})
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, names, response.read())
    finally:
        connection.close()


def write(
    admin: AdminServer, path: str, method: str, body: object = None, **parameters: object
) -> Reply:
    """Send a request with the token."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return ask(admin, path, method, data, headers, **parameters)


def address(admin: AdminServer) -> tuple[str, int]:
    """Return host and port."""
    parts = urlsplit(admin.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def send(
    admin: AdminServer, data: bytes, *, half_close: bool = False, timeout: float = 30
) -> bytes:
    """Send bytes and return all that comes back until the other side hangs up."""
    with socket.create_connection(address(admin), timeout=timeout) as sock:
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            return everything(sock)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def everything(sock: socket.socket) -> bytes:
    """Return what a socket gives until it ends; what came before a reset counts."""
    parts = []
    try:
        while part := sock.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.01)


def fill(
    bookie: Bookie,
    ledger: int | LedgerId,
    entries: object,
    digest: str = "CRC32C",
    size: int = 5,
) -> dict[int, bytes]:
    """Add entries with payloads of their own, and return the payloads."""
    name, coder = LedgerId.of(ledger), Coder(digest, "pw")
    payloads = {}
    for entry in entries:  # type: ignore[attr-defined]
        payload = f"{name.ledger}/{entry}/".encode().ljust(size, b"\xfe")
        payloads[entry] = payload
        record = coder.encode(Entry(name, entry, entry - 1, size, payload))
        bookie.add_entry(record, KEY, sync=False)
    bookie.checkpoint()
    return payloads


def files_below(top: Path) -> dict[str, str]:
    """Return a digest of each file, by its path: whether anything on disk changed."""
    return {
        str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }
